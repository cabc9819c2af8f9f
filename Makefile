# Everything a newcomer types. Each target does its own set-up; only Python 3.11+, Java 17+ and make are assumed.
.DEFAULT_GOAL := help
.PHONY: help setup demo test unit faults neighbours chaos chaos-long soak refusals takeover proof controls simulate bench mutants fuzz image-size captures manifests lint format lock release sbom licences audit docs clean prerequisites packages
SHELL := /bin/bash
# Without bytecode each Python that starts compiles up to two thousand modules again: half of the time of all tests.
unexport PYTHONDONTWRITEBYTECODE
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python; do "$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && command -v "$$p" && break; done)
# Five streams of tests keep two cores busy, four do not: much of an integration test is waiting.
STREAMS ?= 5
BIN := .venv/bin
RUNTIME := .venv/.runtime-ready
READY := .venv/.ready
CLASSES := .venv/.classes-ready
COMPILED := .venv/.compiled-ready
MKDOCS := .venv/mkdocs

PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps
UV_CACHE := .venv/.cache
LOCK := $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header

# PySpark is published as sources only. The wheel that is built of it is unpacked at once, so its jars are not compressed.
BUILD := --no-build-isolation --config-settings=--build-option=--compression=stored

# uv reads neither pip.conf nor PIP_...: these lines translate what pip is configured to know about the package index.
define uv_settings
for section in global install :env:; do $(BIN)/python -m pip config list | sed -n "s/^$$section\.//p"; done | sed -nE \
	-e "s/^index-url='(.*)'$$/export UV_DEFAULT_INDEX='\1'/p" \
	-e "s/^extra-index-url='(.*)'$$/export UV_INDEX='\1'/p" \
	-e "s/^find-links='(.*)'$$/export UV_FIND_LINKS='\1'/p" \
	-e "s/^trusted-host='(.*)'$$/export UV_INSECURE_HOST='\1'/p" \
	-e "s/^cert='(.*)'$$/export SSL_CERT_FILE='\1'/p" \
	-e "s/^proxy='(.*)'$$/export ALL_PROXY='\1'/p" \
	-e "s/^(default-)?timeout='(.*)'$$/export UV_HTTP_TIMEOUT='\2'/p" | sed 's/\\n/ /g'
endef

# Hashes pin every package, so it does not matter which index a file comes from (unsafe-best-match is what pip does).
# The cache is removed afterwards: what it holds of PySpark alone takes 2 GB. The installed files are hard links to it.
UV := UV_NO_CONFIG=1 UV_SYSTEM_CERTS=1 UV_INDEX_STRATEGY=unsafe-best-match UV_CACHE_DIR=$(UV_CACHE) $(BIN)/uv

define install
eval "$$($(uv_settings))"; [ -t 2 ] || quiet=--quiet; \
$(UV) pip install $$quiet --python $(BIN)/python --no-deps $(BUILD) $(1) \
|| { echo "  uv could not install this: pip does it instead, which takes longer"; $(PIP) $(BUILD) $(1); }
endef

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY)  ## create .venv with the winnow command, from hash-pinned dependencies

demo: $(RUNTIME)  ## cleanse 1,000,000 lines on an embedded real Kafka, then count that none is lost or doubled
	@$(BIN)/winnow demo

test: $(CLASSES) $(COMPILED) $(MKDOCS)  ## build and run the image, unit tests, and integration tests on a real Kafka; a dozen start Spark (SHUFFLE=n: in random order)
	$(BIN)/python -m pytest -n $(STREAMS) $(if $(SHUFFLE),--shuffle $(SHUFFLE))

unit: $(READY)  ## the tests that need neither Java nor a broker (seconds)
	$(BIN)/python -m pytest tests/unit

faults: $(CLASSES)  ## the integration tests the long way, before a release: every service on Spark, outages, kills and rates in full length
	$(BIN)/python -m pytest -n 2 --long tests/faults tests/integration

neighbours: $(READY)  ## a Structured Streaming query on PySpark 4.0, in an environment of its own, with the offset listener (about 2 minutes)
	$(BIN)/python -m pytest tests/neighbours

chaos: $(READY)  ## inject faults into the service on a real cluster, check every record (about 15 minutes; SEED=n repeats a run)
	$(BIN)/python -m tests.chaos run --minutes 12 $(if $(SEED),--seed $(SEED))

chaos-long: $(READY)  ## the same for HOURS (by default 6)
	$(BIN)/python -m tests.chaos run --minutes $$(( 60 * $(or $(HOURS),6) )) $(if $(SEED),--seed $(SEED))

simulate: $(READY)  ## run SCHEDULES (5,000) simulated schedules on a model of Kafka from SEED (0) on: kills, freezes, lost and late requests; about 100 a second
	$(BIN)/python -m tests.simulation --schedules $(or $(SCHEDULES),5000) --seed $(or $(SEED),0)

soak: $(READY)  ## steady load for HOURS (3), a fault every few minutes, a take-over each quarter of an hour: what grows, and any anomaly
	$(BIN)/python -m tests.chaos soak --hours $(or $(HOURS),3) $(if $(SEED),--seed $(SEED))

refusals: $(READY)  ## inject refusals and half-outages (refused records, passwords, lost leaders, a second service, …), each kind TIMES (3) times
	$(BIN)/python -m tests.chaos refusals --times $(or $(TIMES),3) $(if $(SEED),--seed $(SEED))

takeover: $(READY)  ## let later generations take over from a running service, killed in the middle, two at once; and without the fence
	$(BIN)/python -m tests.chaos takeover --times $(or $(TIMES),3) $(if $(SEED),--seed $(SEED))

proof: $(READY)  ## the long runs of tests/chaos/RESULTS.md: 5,000,000 lines and 200 kills, zombies, false fences, epochs (about an hour; SEED=5)
	$(BIN)/python -m tests.chaos zombies
	$(BIN)/python -m tests.chaos false-fences
	$(BIN)/python -m tests.chaos epochs
	$(BIN)/python -m tests.chaos run --minutes 90 --seed $(or $(SEED),5) --rate 3300 --kills 200 --lines 5000000

controls: $(READY)  ## run services that are wrong on purpose: the checker must find each of them out (about half an hour)
	$(BIN)/python -m tests.chaos controls

bench: $(READY)  ## Winnow beside Flink, Kafka Streams and Spark's own Kafka connector, then its formats and filters, on one embedded broker (about 30 minutes)
	$(BIN)/python -m tests.bench
	$(BIN)/python -m tests.bench.formats

mutants: $(CLASSES)  ## put small faults into the product: the tests must notice 95 % (N=100 tries a sample)
	nice -n 19 $(BIN)/python -m tests.mutants $(if $(N),--sample $(N) --seed $(or $(SEED),0))

fuzz: $(READY)  ## look for input that breaks anything: libFuzzer for EACH (60) seconds on each target, 10,000,000 damaged lines, forbidden memory
	$(BIN)/python -m tests.fuzz --seconds $(or $(EACH),60) --lines $(or $(LINES),10000000) $(if $(SEED),--seed $(SEED))

image-size: $(READY)  ## build the image by Debian's mmdebstrap and buildah (as root), and print how large its parts are
	$(BIN)/python -m tests.containers

lint: $(READY)  ## ruff, strict mypy, hadolint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/hadolint docker/Dockerfile docker/flume.Dockerfile

format: $(READY)  ## rewrite the sources as ruff wants them
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

captures: $(READY)  ## run each command in a terminal on an embedded Kafka, and write what it prints into docs/screens.md (2 minutes)
	$(BIN)/python -m tests.captures

manifests: $(READY)  ## render the plain manifests of k8s/ from the chart k8s/winnow
	$(BIN)/python -m tests.deploy.chart

lock: $(READY)  ## resolve the pinned dependencies anew
	$(LOCK) pyproject.toml -o docker/requirements.lock
	$(LOCK) --all-extras --group dev -c docker/requirements.lock pyproject.toml -o tests/requirements.lock
	$(LOCK) --extra stores -c tests/requirements.lock pyproject.toml -o docker/image.lock
	$(LOCK) --group docs -c tests/requirements.lock -o docs/requirements.lock
	$(BIN)/python -m tests.support.ivy > .venv/kafka.lock && mv .venv/kafka.lock app/embedded/kafka.lock

release: $(READY)  ## wheel, sdist, chart, image recipe, SBOM and their hashes in dist/: equal bytes for equal sources
	$(BIN)/python -m tests.release build

sbom: $(READY)  ## what the image ships, as CycloneDX in dist/
	$(BIN)/python -m tests.release sbom

licences: $(READY)  ## the licence of each thing that the image ships; fails at one that must not be shipped
	$(BIN)/python -m tests.release licences

audit: $(READY)  ## ask PyPI for known vulnerabilities of what the locks name (3 if it does not answer for all of it)
	$(BIN)/python -m tests.release audit

docs: $(MKDOCS)  ## build the documentation with its search into SITE (dist/docs); a broken link fails
	@NO_MKDOCS_2_WARNING=1 PYTHONPATH=$(MKDOCS) $(BIN)/python -m mkdocs build --strict --config-file $(or $(DOCS),docs)/site/mkdocs.yml --site-dir "$(abspath $(or $(SITE),dist/docs))"
	@echo "to read it, with its search: $(BIN)/python -m http.server --directory $(or $(SITE),dist/docs)"

clean:  ## remove what the other targets created here
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis .fuzz dist

prerequisites:
	@[ -n "$(PYTHON)" ] || { echo "winnow needs Python 3.11 or newer: none was found on PATH (set PYTHON=/path/to/python3)" >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip' 2>/dev/null || { echo "winnow needs Python's module venv: on Debian, install python3-venv" >&2; exit 1; }
	@java_home="$${JAVA_HOME:+$$JAVA_HOME/bin/}"; version=$$("$${java_home}java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1); \
	[ "$${version:-0}" -ge 17 ] || { echo "winnow needs Java 17 or newer: found $${version:-none} (set JAVA_HOME or PATH)" >&2; exit 1; }

# What runs the demo: every package with its hash, and the winnow command from this folder.
$(RUNTIME): docker/build.lock docker/requirements.lock pyproject.toml | prerequisites
	@echo "setting up .venv (once)"
	@"$(PYTHON)" -m venv --clear .venv
	@echo "  the installer"
	@$(PIP) --no-compile --require-hashes -r docker/build.lock
	@echo "  PySpark (450 MB) and the other packages that Winnow runs with"
	@$(call install,--require-hashes -r docker/requirements.lock)
	@$(call install,--editable .)
	@rm -rf $(UV_CACHE)
	@touch $@

# What tests and lints it, besides.
$(READY): $(RUNTIME) tests/requirements.lock
	@echo "  the packages of the tests"
	@$(call install,--require-hashes -r tests/requirements.lock)
	@rm -rf $(UV_CACHE)
	@touch $@

# What a lock names, beside what .venv has: tests/bench/environment.py calls this for another PySpark.
packages:
	@$(call install,--target "$(FOLDER)" --require-hashes -r "$(PINS)")
	@rm -rf $(UV_CACHE)

# What builds the site, in a folder of its own: the service and its tests run without it.
$(MKDOCS): docs/requirements.lock | $(READY)
	@echo "  MkDocs (once)"
	@rm -rf $@ $@.new
	@$(MAKE) --silent packages FOLDER=$@.new PINS=docs/requirements.lock
	@mv $@.new $@

# Archives of the classes of Kafka and Spark: in tests they start with half the work.
$(CLASSES): $(READY)
	@echo "  the classes of Kafka and Spark (once)"
	@$(BIN)/python -m tests.support.java
	@touch $@

# The streams start at the same moment: without this, each would compile all modules and kernels, for 30 CPU-seconds more.
$(COMPILED): $(READY) parsers/compiled/kernels.py app/kafka/bulk/kernels.py
	@echo "  bytecode and kernels (once)"
	@$(BIN)/python -c "import app.kafka.bulk.kernels, parsers.compiled.kernels"
	@$(BIN)/python -m pytest --collect-only --quiet --quiet >/dev/null
	@touch $@
