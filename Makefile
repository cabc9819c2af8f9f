# Everything a newcomer types. Each target does its own set-up; only Python 3.11+, Java 17+ and make are assumed.
.DEFAULT_GOAL := help
.PHONY: help setup demo test unit chaos chaos-long proof controls bench lint format lock clean prerequisites
SHELL := /bin/bash
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python; do "$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && command -v "$$p" && break; done)
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
READY := .venv/.ready

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY)  ## create .venv with the winnow command, from hash-pinned dependencies

demo: $(READY)  ## cleanse 1,000,000 lines on an embedded real Kafka, then count that none is lost or doubled
	@$(BIN)/winnow demo

test: $(READY)  ## unit tests, then integration and fault tests on a real Kafka and a real Spark
	$(BIN)/python -m pytest tests

unit: $(READY)  ## the tests that need neither Java nor a broker (seconds)
	$(BIN)/python -m pytest tests/unit

chaos: $(READY)  ## do harm to the service on a real cluster, check every record (about 15 minutes; SEED=n repeats a run)
	$(BIN)/python -m tests.chaos run --minutes 12 $(if $(SEED),--seed $(SEED))

chaos-long: $(READY)  ## the same for HOURS (by default 6)
	$(BIN)/python -m tests.chaos run --minutes $$(( 60 * $(or $(HOURS),6) )) $(if $(SEED),--seed $(SEED))

proof: $(READY)  ## all that README says under Proof: 5,000,000 lines and 200 kills, zombies, tasks in peace, epochs (about an hour)
	$(BIN)/python -m tests.chaos zombies
	$(BIN)/python -m tests.chaos peace
	$(BIN)/python -m tests.chaos epochs
	$(BIN)/python -m tests.chaos run --minutes 90 --rate 3000 --kills 200 --lines 5000000 $(if $(SEED),--seed $(SEED))

controls: $(READY)  ## run services that are wrong on purpose: the checker must find each of them out (about 4 minutes)
	$(BIN)/python -m tests.chaos controls

bench: $(READY)  ## Winnow beside Flink, Kafka Streams and Spark's own Kafka connector, on one embedded broker (about 15 minutes)
	$(BIN)/python -m tests.bench

lint: $(READY)  ## ruff, strict mypy, hadolint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/hadolint docker/Dockerfile

format: $(READY)  ## rewrite the sources as ruff wants them
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock:  ## resolve the pinned dependencies anew (needs uv)
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header pyproject.toml -o docker/requirements.lock
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --group dev -c docker/requirements.lock pyproject.toml -o tests/requirements.lock

clean:  ## remove what the other targets created here
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis dist

prerequisites:
	@[ -n "$(PYTHON)" ] || { echo "winnow needs Python 3.11 or newer: none was found on PATH (set PYTHON=/path/to/python3)" >&2; exit 1; }
	@java_home="$${JAVA_HOME:+$$JAVA_HOME/bin/}"; version=$$("$${java_home}java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1); \
	[ "$${version:-0}" -ge 17 ] || { echo "winnow needs Java 17 or newer: found $${version:-none} (set JAVA_HOME or PATH)" >&2; exit 1; }

$(READY): docker/build.lock tests/requirements.lock pyproject.toml | prerequisites
	@echo "setting up .venv (once)"
	@"$(PYTHON)" -m venv --clear .venv
	@$(PIP) --require-hashes -r docker/build.lock
	@$(PIP) --require-hashes --no-build-isolation -r tests/requirements.lock
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@
