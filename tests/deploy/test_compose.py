"""The Compose file: its services, their order and restrictions, and the files that it mounts."""

from __future__ import annotations

import json
import re
import subprocess
from importlib.metadata import distribution
from pathlib import Path

import jsonschema
import pytest
import yaml

from app import config
from tests.deploy.conftest import COMPOSE, DOCKERFILE, Document
from tests.prometheus import TOOL

FOLDER = COMPOSE.parent
SCHEMA = "check_jsonschema/builtin_schemas/vendor/compose-spec.json"
USED = config.load(FOLDER / "winnow.yaml", environ={})
OWN_CHECK = {"winnow": DOCKERFILE, "generator": DOCKERFILE, "flume": FOLDER / "flume.Dockerfile"}
"""The services that use the health check of their image."""


def read(file: str) -> Document:
    """Read a YAML file of the folder."""
    content: Document = yaml.safe_load((FOLDER / file).read_text("utf-8"))
    return content


def mounts(service: Document) -> dict[str, str]:
    """Return the files of this folder that a service mounts, by their paths in the container."""
    parts = [mount.split(":") for mount in service.get("volumes", [])]
    return {inside: source for source, inside, *_ in parts if source.startswith("./")}


def test_compose_obeys_the_specification() -> None:
    """The file is valid by the Compose specification."""
    schema = json.loads(Path(str(distribution("check-jsonschema").locate_file(SCHEMA))).read_text())
    validator = jsonschema.validators.validator_for(schema)(schema)

    assert [] == [error.message for error in validator.iter_errors(read("compose.yaml"))]
    assert list(validator.iter_errors({"services": {"kafka": {"port": []}}}))


def test_compose_mounts_the_configuration(services: dict[str, Document]) -> None:
    """Winnow runs with docker/winnow.yaml, mounted read-only at the path in its command."""
    winnow = services["winnow"]
    assert winnow["command"] == ["winnow", "run", "-c", "/etc/winnow/winnow.yaml", "--stand-by"]
    assert winnow["volumes"] == ["./winnow.yaml:/etc/winnow/winnow.yaml:ro"]


def test_compose_mounts_only_what_is_there(services: dict[str, Document]) -> None:
    """Each mounted file exists and is mounted read-only. An engine would create a folder in place of a missing file."""
    for service in services.values():
        for mount in service.get("volumes", []):
            source, _, *options = mount.split(":")
            if source.startswith("./"):
                assert (FOLDER / source).is_file(), mount
                assert options == ["ro"], mount
            else:
                assert source in read("compose.yaml")["volumes"], mount


def test_compose_confines_every_service(services: dict[str, Document]) -> None:
    """No service is privileged or has a writable image, and ports are open only to this machine."""
    assert set(services) == {"kafka", "topics", "flume", "winnow", "generator", "prometheus", "grafana"}
    for service in services.values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert any(mount.startswith("/tmp:") for mount in service["tmpfs"])
        assert not {"privileged", "cap_add", "network_mode", "pid", "user"} & service.keys()
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))


def test_every_service_has_a_health_check(services: dict[str, Document]) -> None:
    """Each service has a health check, either here or in an image that is built here."""
    for name, service in services.items():
        if name in OWN_CHECK:
            assert "healthcheck" not in service
            assert "\nHEALTHCHECK " in OWN_CHECK[name].read_text("utf-8")
        else:
            assert "healthcheck" in service


def test_every_image_has_a_version(services: dict[str, Document]) -> None:
    """Every image has a fixed version."""
    for service in services.values():
        assert re.fullmatch(r"[\w./-]+:v?\d+(\.\d+)+", service["image"]), service["image"]


def test_compose_makes_the_topics_that_winnow_uses(services: dict[str, Document]) -> None:
    """The configured topics exist with eight partitions before Winnow and Flume start."""
    made = dict(re.findall(r"create (\S+) (\d+)", services["topics"]["command"][0]))
    assert made == {**dict.fromkeys([*USED.source.topics, USED.sink.topic], "8"), USED.dead_letters.topic: "1"}
    for service in ("winnow", "flume"):
        assert services[service]["depends_on"] == {"topics": {"condition": "service_completed_successfully"}}
    assert services["topics"]["depends_on"] == {"kafka": {"condition": "service_healthy"}}


def test_the_generator_feeds_flume_and_flume_the_source(services: dict[str, Document]) -> None:
    """The generator sends to the agent's socket, and the agent writes to Winnow's source topic on the same broker."""
    rows = (row.split(" = ") for row in (FOLDER / "flume.conf").read_text("utf-8").splitlines() if " = " in row)
    agent = {name.removeprefix("agent."): text for name, text in rows if name.startswith("agent.")}
    flume = services["flume"]
    (channel,) = [mount.split(":")[1] for mount in flume["volumes"] if not mount.startswith("./")]

    assert services["generator"]["command"][:4] == ["python", "-m", "app.demo.feed", "--flume"]
    assert services["generator"]["command"][4] == f"flume:{agent['sources.socket.port']}"
    assert services["generator"]["depends_on"] == {"flume": {"condition": "service_healthy"}}
    assert agent["sources.socket.type"] == "netcat"
    assert agent["sinks.kafka.kafka.bootstrap.servers"] == USED.kafka["bootstrap.servers"]
    assert agent["sinks.kafka.kafka.topic"] == USED.source.topics[0]
    assert mounts(flume) == {"/etc/flume/flume.conf": "./flume.conf"}
    assert agent["channels.disk.dataDirs"].startswith(f"{channel}/")
    assert agent["channels.disk.checkpointDir"].startswith(f"{channel}/")
    (built,) = re.findall(r"EXPOSE (\d+)", (FOLDER / "flume.Dockerfile").read_text("utf-8"))
    assert built == agent["sources.socket.port"]


def test_prometheus_scrapes_winnow_and_watches_the_rules(services: dict[str, Document]) -> None:
    """Prometheus scrapes the port of the status page."""
    inside, scraped = mounts(services["prometheus"]), read("prometheus.yaml")
    (job,) = scraped["scrape_configs"]
    (target,) = job["static_configs"]

    assert inside == {
        "/etc/prometheus/prometheus.yml": "./prometheus.yaml",
        "/etc/prometheus/alerts.yaml": "./alerts.yaml",
    }
    assert scraped["rule_files"] == ["alerts.yaml"]
    assert target == {"targets": [f"winnow:{USED.http.port}"]}


@pytest.mark.skipif(TOOL is None, reason="promtool of Debian's package prometheus is not installed")
def test_prometheus_takes_its_configuration() -> None:
    """`promtool` accepts the configuration and the rules it names."""
    command = [TOOL or "", "check", "config", str(FOLDER / "prometheus.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 rule files found" in done.stdout


def test_grafana_finds_its_data_and_the_dashboard(services: dict[str, Document]) -> None:
    """Grafana's provisioning files are where it looks for them, and name Prometheus and the dashboard's folder."""
    grafana, inside = services["grafana"], mounts(services["grafana"])
    (dashboard,) = [path for path, source in inside.items() if source == "./dashboard.json"]
    (source,) = read("grafana-datasource.yaml")["datasources"]
    (provider,) = read("grafana-dashboards.yaml")["providers"]
    (variable,) = [
        each
        for each in json.loads((FOLDER / "dashboard.json").read_text())["templating"]["list"]
        if each["type"] == "datasource"
    ]

    assert inside["/etc/grafana/provisioning/datasources/winnow.yaml"] == "./grafana-datasource.yaml"
    assert inside["/etc/grafana/provisioning/dashboards/winnow.yaml"] == "./grafana-dashboards.yaml"
    assert (provider["type"], dashboard.rpartition("/")[0]) == ("file", provider["options"]["path"])
    assert grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] == dashboard
    assert source["type"] == variable["query"] == "prometheus"
    assert source["url"] == "http://prometheus:9090"
    assert "prometheus" in services


def test_no_two_services_want_the_same_port(services: dict[str, Document]) -> None:
    """The pages of Winnow, Prometheus and Grafana use different ports."""
    taken = [port.split(":")[1] for service in services.values() for port in service.get("ports", [])]
    assert sorted(taken) == ["3000", "8090", "9090"]
