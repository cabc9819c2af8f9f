"""The Compose file: its services, their order and their confinement."""

from __future__ import annotations

import re

from app import config
from tests.deploy.conftest import COMPOSE, Document


def test_compose_mounts_the_configuration(services: dict[str, Document]) -> None:
    """Winnow runs with docker/winnow.yaml, mounted read-only at the path in its command."""
    winnow = services["winnow"]
    assert winnow["command"] == ["winnow", "run", "-c", "/etc/winnow/winnow.yaml"]
    assert winnow["volumes"] == ["./winnow.yaml:/etc/winnow/winnow.yaml:ro"]
    assert (COMPOSE.parent / "winnow.yaml").is_file()


def test_compose_confines_every_service(services: dict[str, Document]) -> None:
    """No service has a privilege or a writable image, or can gain either."""
    assert set(services) == {"kafka", "topics", "winnow", "generator"}
    for service in services.values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert any(mount.startswith("/tmp:") for mount in service["tmpfs"])
        assert not {"privileged", "cap_add", "network_mode", "pid", "user"} & service.keys()
        assert "healthcheck" in service


def test_compose_makes_the_topics_that_winnow_uses(services: dict[str, Document]) -> None:
    """The topics of the configuration exist, with eight partitions, before Winnow and the generator start."""
    made = dict(re.findall(r"create (\S+) (\d+)", services["topics"]["command"][0]))
    used = config.load(COMPOSE.parent / "winnow.yaml", environ={})
    assert made == {**dict.fromkeys([*used.source.topics, used.sink.topic], "8"), used.dead_letters.topic: "1"}
    for service in ("winnow", "generator"):
        assert services[service]["depends_on"] == {"topics": {"condition": "service_completed_successfully"}}
    assert services["topics"]["depends_on"] == {"kafka": {"condition": "service_healthy"}}


def test_generator_feeds_the_source(services: dict[str, Document]) -> None:
    """The generator writes to the topic that Winnow reads, on the same broker."""
    command = services["generator"]["command"]
    used = config.load(COMPOSE.parent / "winnow.yaml", environ={})
    options = dict(zip(command[3::2], command[4::2], strict=True))
    assert command[:3] == ["python", "-m", "app.demo.feed"]
    assert options == {
        "--bootstrap": used.kafka["bootstrap.servers"],
        "--topic": used.source.topics[0],
        "--rate": "2000",
    }
