"""What is deployed: the image, the Compose file and the manifests, checked without Docker and without a cluster."""

from __future__ import annotations

import copy
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from app import config
from app.config import Config

Document = dict[str, Any]

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
DOCKERFILE = ROOT / "docker/Dockerfile"
ENTRYPOINT = ROOT / "docker/entrypoint.sh"
COMPOSE = ROOT / "docker/compose.yaml"
CRD = ROOT.parent / "shared/crds/sparkapplication-crd-v2.5.2.yaml"
KUBERNETES = "1.37"
WORKER_MIB = 500

# Each of these can outlive the pod that mounts it, as a checkpoint would.
LASTING_VOLUMES = {"persistentVolumeClaim", "ephemeral", "hostPath", "nfs", "csi", "local", "awsElasticBlockStore"}


def documents(path: Path) -> list[Document]:
    """Read every YAML document of a file."""
    return [document for document in yaml.safe_load_all(path.read_text("utf-8")) if document]


MANIFESTS = [(path, document) for path in sorted((ROOT / "k8s").glob("*.yaml")) for document in documents(path)]
NATIVE = [document for _, document in MANIFESTS if document["kind"] != "SparkApplication"]


def of_kind(kind: str) -> Document:
    """Find the one manifest of a kind."""
    (found,) = [document for _, document in MANIFESTS if document["kind"] == kind]
    return found


def application() -> Document:
    """Read the SparkApplication's spec."""
    spec: Document = of_kind("SparkApplication")["spec"]
    return spec


def final_stage() -> str:
    """Cut the stage that becomes the image out of the Dockerfile, with continued lines joined."""
    return re.split(r"^FROM ", DOCKERFILE.read_text("utf-8").replace("\\\n", ""), flags=re.MULTILINE)[-1]


def image_environment() -> dict[str, str]:
    """Read the variables that the image sets."""
    words = [word for line in re.findall(r"^ENV (.*)$", final_stage(), re.MULTILINE) for word in shlex.split(line)]
    return dict(word.split("=", 1) for word in words)


def version() -> str:
    """Read the version under which the image is tagged."""
    project: Document = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return str(project["version"])


def mebibytes(quantity: str) -> int:
    """Read a size as Spark writes it."""
    return int(quantity[:-1]) * {"m": 1, "g": 1024}[quantity[-1]]


def keys_and_values(node: object) -> list[tuple[str, object]]:
    """List every key of a tree with what stands under it."""
    if isinstance(node, list):
        return [pair for item in node for pair in keys_and_values(item)]
    if isinstance(node, dict):
        return [(key, value) for key, value in node.items()] + [
            pair for value in node.values() for pair in keys_and_values(value)
        ]
    return []


# The image


def hadolint(dockerfile: Path) -> subprocess.CompletedProcess[str]:
    """Lint a Dockerfile."""
    return subprocess.run([BIN / "hadolint", dockerfile], capture_output=True, text=True, check=False, timeout=60)


def test_dockerfile_has_no_finding() -> None:
    """Hadolint has nothing to say about the Dockerfile."""
    assert hadolint(DOCKERFILE).stdout == ""
    assert hadolint(DOCKERFILE).returncode == 0


def test_a_careless_dockerfile_has_findings(tmp_path: Path) -> None:
    """The linter of the test above can tell a good Dockerfile from a bad one."""
    (tmp_path / "Dockerfile").write_text("FROM debian\nRUN apt-get install curl\n")
    assert hadolint(tmp_path / "Dockerfile").returncode == 1


def test_base_images_are_pinned_to_python_and_debian() -> None:
    """Every stage starts from the same Python on the same Debian, never from `latest`."""
    bases = re.findall(r"^FROM (\S+)", DOCKERFILE.read_text("utf-8"), re.MULTILINE)
    assert len(bases) > 1
    assert {base.partition("@")[0] for base in bases} == {"python:3.11-slim-bookworm"}


def test_image_has_java_17_and_an_init() -> None:
    """Spark runs on Java 17, and tini hands signals on."""
    assert re.findall(r"openjdk-(\d+)", final_stage()) == ["17"]
    assert 'ENTRYPOINT ["/usr/bin/tini", "-s", "--", "/opt/winnow/entrypoint.sh"]' in final_stage()


def test_image_is_not_run_by_root() -> None:
    """The image's last user is 185, as in Spark's own images, and never 0."""
    assert re.findall(r"^USER (.*)$", final_stage(), re.MULTILINE) == ["185:185"]


def test_image_carries_no_compiler() -> None:
    """What is not needed to run is not there to be misused: no C compiler, no JDK, no pip of its own."""
    assert not re.search(r"\b(gcc|g\+\+|clang|build-essential|make|\S+-jdk\S*|python3?-dev)\b", final_stage())
    assert "pip uninstall -y -r docker/build.lock pip" in DOCKERFILE.read_text("utf-8")


def test_image_installs_only_what_is_hashed() -> None:
    """Each package that comes from an index is checked against its hash; the wheel brings none along."""
    text = re.sub(r"\s+", " ", DOCKERFILE.read_text("utf-8").replace("\\\n", " "))
    installs = re.findall(r"pip (?:install|wheel) .*?(?= RUN | COPY | FROM |&&|$)", text)
    assert any(
        install.startswith("pip install --require-hashes") and "requirements.lock" in install for install in installs
    )
    assert all("--require-hashes" in install or "--no-deps" in install for install in installs)
    assert all(
        "--only-binary :all:" in install or "--no-build-isolation" in install or "--no-index" in install
        for install in installs
    )


def test_wheel_is_built_with_the_pins_of_the_tests() -> None:
    """The lock of the image's build agrees with the lock of the tests, hash by hash."""
    pin = re.compile(r"^(\S+==\S+) \\\n((?:    --hash=\S+(?: \\)?\n)+)", re.MULTILINE)
    tested = dict(pin.findall((ROOT / "tests/requirements.lock").read_text("utf-8")))
    built = dict(pin.findall((ROOT / "docker/build.lock").read_text("utf-8")))
    shared = {name: hashes for name, hashes in built.items() if not name.startswith("setuptools==")}
    assert any(name.startswith("hatchling==") for name in shared)
    assert shared.items() <= tested.items()


def test_build_context_holds_what_is_copied() -> None:
    """Each file that the Dockerfile copies exists and is let in by .dockerignore."""
    copies = re.findall(r"^COPY (?!--from)(?:--\S+ )*(.*) \S+$", DOCKERFILE.read_text("utf-8"), re.MULTILINE)
    copied = {source for sources in copies for source in sources.split()}
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if line.startswith("!")}
    assert {"app", "parsers", "docker/entrypoint.sh"} <= copied
    assert all((ROOT / source).exists() for source in copied)
    assert copied == allowed


def test_image_sets_no_configuration_key() -> None:
    """A variable of the image is never taken for a key of the configuration."""
    assert "NUMBA_CACHE_DIR" in image_environment()
    assert not [name for name in image_environment() if name.startswith(config.ENV_PREFIX)]


def test_image_writes_only_below_tmp() -> None:
    """What the image writes at run time goes to /tmp, which the manifests mount: the root may be read-only."""
    environment = image_environment()
    assert environment["PYTHONDONTWRITEBYTECODE"] == "1"
    assert environment["NUMBA_CACHE_DIR"].startswith("/tmp/")
    assert environment["SPARK_LOCAL_DIRS"].startswith("/tmp/")


def test_kernels_are_compiled_while_building() -> None:
    """The build fills the folder of kernels that the entrypoint hands out, for any processor."""
    environment = image_environment()
    assert f"NUMBA_CACHE_DIR={environment['BAKED_KERNELS']} winnow parse /opt/winnow/warm-up.log" in final_stage()
    bulk = 'python -c "from app.kafka.backend import why_not_bulk as w; exit(w({}) or 0)"'
    assert f"NUMBA_CACHE_DIR={environment['BAKED_KERNELS']} {bulk}" in final_stage()
    assert environment["NUMBA_CPU_NAME"] == "generic"
    lines = (ROOT / "docker/warm-up.log").read_text("utf-8").splitlines()
    assert lines
    assert all(len(line.removeprefix("<<<!>>>").split("<<<!>>>,<<<!>>>")) == 15 for line in lines)


# The entrypoint

STUB = """#!{python} -IS
import json, os, sys
print(json.dumps({{"argv": sys.argv, "env": dict(os.environ), "pid": os.getpid()}}))
"""
SPARK_EXECUTOR = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@driver-svc:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "768m",
    "SPARK_APPLICATION_ID": "spark-0123",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.7",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "winnow-exec-3",
    "SPARK_CONF_DIR": "/opt/spark/conf",
    "SPARK_HOME": "/spark",
}
SPARK_DRIVER = ["driver", "--properties-file", "/opt/spark/conf/spark.properties"]
SPARK_DRIVER += ["--class", "org.apache.spark.deploy.PythonRunner"]


class Container:
    """The entrypoint with programs that tell how they were called."""

    def __init__(self, folder: Path) -> None:
        """Put the programs into a folder."""
        self.folder = folder
        for program in ("java", "python3", "winnow"):
            (folder / program).write_text(STUB.format(python=sys.executable))
            (folder / program).chmod(0o755)

    def start(self, *arguments: str, **environment: str) -> tuple[int, str, str, int]:
        """Run it to its end and return its exit code, its output, its errors and its process id."""
        with subprocess.Popen(
            [ENTRYPOINT, *arguments],
            env={"PATH": f"{self.folder}:/usr/bin:/bin", "PYSPARK_PYTHON": str(self.folder / "python3")} | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            output, errors = process.communicate(timeout=30)
        return process.returncode, output, errors, process.pid

    def started(self, *arguments: str, **environment: str) -> Document:
        """Run it and return what the program that it became says."""
        code, output, errors, pid = self.start(*arguments, **environment)
        assert (code, errors) == (0, "")
        report: Document = json.loads(output)
        assert report["pid"] == pid, "the program must replace the entrypoint, or it never sees a signal"
        return report


@pytest.fixture
def container(tmp_path: Path) -> Container:
    """Make a container of stubs."""
    return Container(tmp_path)


def test_executor_is_called_as_spark_expects(container: Container) -> None:
    """An executor is Spark's own class, with Java's options in their order and each setting in its place."""
    options = {f"SPARK_JAVA_OPT_{number}": f"-Dn={number}" for number in (10, 0, 9)} | {
        "SPARK_JAVA_OPT_1": "-Dtext=two words 'and' \"quotes\""
    }
    report = container.started("executor", **SPARK_EXECUTOR, **options)
    assert report["argv"] == [
        str(container.folder / "java"),
        "-Dn=0",
        "-Dtext=two words 'and' \"quotes\"",
        "-Dn=9",
        "-Dn=10",
        "-Xms768m",
        "-Xmx768m",
        "-cp",
        "/opt/spark/conf:/spark/jars/*",
        "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
        "--driver-url",
        "spark://CoarseGrainedScheduler@driver-svc:7078",
        "--executor-id",
        "3",
        "--cores",
        "2",
        "--app-id",
        "spark-0123",
        "--hostname",
        "10.0.0.7",
        "--resourceProfileId",
        "0",
        "--podName",
        "winnow-exec-3",
    ]


def test_executor_uses_the_java_of_java_home(container: Container, tmp_path: Path) -> None:
    """JAVA_HOME wins over PATH, and a class path that Spark adds is kept."""
    home = tmp_path / "jvm"
    (home / "bin").mkdir(parents=True)
    (home / "bin/java").symlink_to(container.folder / "java")
    report = container.started("executor", **SPARK_EXECUTOR, JAVA_HOME=str(home), SPARK_CLASSPATH="/extra.jar")
    assert report["argv"][0] == str(home / "bin/java")
    assert "/opt/spark/conf:/extra.jar:/spark/jars/*" in report["argv"]


def test_executor_that_reads_its_secret_from_a_file_is_told_its_master(container: Container) -> None:
    """Spark reads a secret file only where the master is known as Kubernetes, and tells executors too late."""
    secret = "-Dspark.authenticate.secret.file=/etc/winnow/secrets/spark.auth"
    plain = container.started("executor", **SPARK_EXECUTOR, SPARK_JAVA_OPT_0="-Dspark.authenticate=true")["argv"]
    told = container.started("executor", **SPARK_EXECUTOR, SPARK_JAVA_OPT_0=secret)["argv"]
    assert not [argument for argument in plain if argument.startswith("-Dspark.master")]
    assert told[1:4] == [secret, "-Dspark.master=k8s://driver", "-Xms768m"]


@pytest.mark.parametrize("missing", sorted(SPARK_EXECUTOR.keys() - {"SPARK_CONF_DIR"}))
def test_executor_does_not_start_without_a_setting(container: Container, missing: str) -> None:
    """An executor without one of Spark's settings ends at once and names it."""
    code, output, errors, _ = container.start(
        "executor", **{name: value for name, value in SPARK_EXECUTOR.items() if name != missing}
    )
    assert code != 0
    assert output == ""
    assert missing in errors


def test_driver_is_the_python_program(container: Container) -> None:
    """The driver is Python itself, which leaves to its JVM: Spark's properties, client mode and the pod's address."""
    report = container.started(
        *SPARK_DRIVER,
        "local:///opt/winnow/main.py",
        "run",
        "-c",
        "/etc/winnow/winnow.yaml",
        SPARK_DRIVER_BIND_ADDRESS="10.0.0.5",
    )
    assert report["argv"] == [
        str(container.folder / "python3"),
        "/opt/winnow/main.py",
        "run",
        "-c",
        "/etc/winnow/winnow.yaml",
    ]
    assert shlex.split(report["env"]["PYSPARK_SUBMIT_ARGS"]) == [
        "--properties-file",
        "/opt/spark/conf/spark.properties",
        "--deploy-mode",
        "client",
        "--conf",
        "spark.driver.bindAddress=10.0.0.5",
        "pyspark-shell",
    ]


def test_driver_arguments_arrive_unchanged(container: Container) -> None:
    """Blanks, quotes and options behind the program belong to the program; those before it to Spark."""
    report = container.started(
        "driver",
        "--name",
        "it's two words",
        "local:///opt/winnow/main.py",
        "--set",
        "a b='c'",
        "",
        SPARK_DRIVER_BIND_ADDRESS="::1",
    )
    assert report["argv"][1:] == ["/opt/winnow/main.py", "--set", "a b='c'", ""]
    assert shlex.split(report["env"]["PYSPARK_SUBMIT_ARGS"])[:2] == ["--name", "it's two words"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([*SPARK_DRIVER], "no program given"),
        ([*SPARK_DRIVER, "s3a://bucket/main.py"], "s3a://bucket/main.py is not in the image"),
        (["driver", "--properties-file"], "--properties-file has no value"),
    ],
)
def test_driver_refuses_what_it_cannot_run(container: Container, arguments: list[str], sentence: str) -> None:
    """A driver without a program in the image ends with the code of wrong usage and says what is missing."""
    code, output, errors, _ = container.start(*arguments, SPARK_DRIVER_BIND_ADDRESS="10.0.0.5")
    assert (code, output) == (2, "")
    assert sentence in errors


def test_driver_needs_the_address_to_bind(container: Container) -> None:
    """A driver that Spark gave no address ends at once and names the variable."""
    code, _, errors, _ = container.start(*SPARK_DRIVER, "local:///opt/winnow/main.py")
    assert code != 0
    assert "SPARK_DRIVER_BIND_ADDRESS" in errors


def test_any_other_command_is_run_as_given(container: Container) -> None:
    """A command that is neither driver nor executor is run as it stands."""
    assert container.started("winnow", "parse", "a b", "-")["argv"][1:] == ["parse", "a b", "-"]


def test_no_command_is_winnow(container: Container) -> None:
    """A container without a command runs `winnow`, which prints its help."""
    assert container.started()["argv"] == [str(container.folder / "winnow")]


def test_service_links_are_no_configuration(container: Container) -> None:
    """What Kubernetes says about a Service named winnow-... is dropped; keys that a user set stay."""
    links = {
        "WINNOW_UI_SVC_SERVICE_HOST": "10.1.1.1",
        "WINNOW_UI_SVC_SERVICE_PORT": "4040",
        "WINNOW_UI_SVC_SERVICE_PORT_SPARK_DRIVER_UI_PORT": "4040",
        "WINNOW_UI_SVC_PORT": "tcp://10.1.1.1:4040",
        "WINNOW_UI_SVC_PORT_4040_TCP": "tcp://10.1.1.1:4040",
        "WINNOW_UI_SVC_PORT_4040_TCP_ADDR": "10.1.1.1",
    }
    keys = {"WINNOW_SOURCE__TOPICS": "a,b", "WINNOW_METRICS__PORT": "9404", "WINNOW_UI": "x"}
    report = container.started("winnow", **links, **keys)
    assert {name: value for name, value in report["env"].items() if name.startswith("WINNOW")} == keys


def test_kernels_are_handed_out_once(container: Container, tmp_path: Path) -> None:
    """The baked kernels are copied to where Numba may write, and a restart keeps what is there by then."""
    baked, cache = tmp_path / "baked", tmp_path / "cache"
    (baked / "parsers").mkdir(parents=True)
    (baked / "parsers/kernel.nbi").write_text("baked")
    folders = {"BAKED_KERNELS": str(baked), "NUMBA_CACHE_DIR": str(cache)}
    container.started("winnow", **folders)
    assert (cache / "parsers/kernel.nbi").read_text() == "baked"
    (cache / "parsers/kernel.nbi").write_text("newer")
    container.started("winnow", **folders)
    assert (cache / "parsers/kernel.nbi").read_text() == "newer"
    assert sorted(path.name for path in cache.iterdir()) == ["parsers"]


def test_entrypoint_is_strict() -> None:
    """The script can be executed and stops at the first failure, also of a variable that is not set."""
    assert os.access(ENTRYPOINT, os.X_OK)
    assert "\nset -euo pipefail\n" in ENTRYPOINT.read_text("utf-8")


# The Compose file


def services() -> dict[str, Document]:
    """Read the services of the Compose file."""
    (document,) = documents(COMPOSE)
    found: dict[str, Document] = document["services"]
    return found


def test_compose_mounts_the_configuration() -> None:
    """Winnow runs with docker/winnow.yaml, mounted read-only where its command looks for it."""
    winnow = services()["winnow"]
    assert winnow["command"] == ["winnow", "run", "-c", "/etc/winnow/winnow.yaml"]
    assert winnow["volumes"] == ["./winnow.yaml:/etc/winnow/winnow.yaml:ro"]
    assert (COMPOSE.parent / "winnow.yaml").is_file()


def test_compose_confines_every_service() -> None:
    """No service has a privilege, a writable image or a way to gain either."""
    assert set(services()) == {"kafka", "topics", "winnow", "generator"}
    for service in services().values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert any(mount.startswith("/tmp:") for mount in service["tmpfs"])
        assert not {"privileged", "cap_add", "network_mode", "pid", "user"} & service.keys()
        assert "healthcheck" in service


def test_compose_makes_the_topics_that_winnow_uses() -> None:
    """The topics of the configuration exist, with eight partitions, before Winnow and the generator start."""
    made = dict(re.findall(r"create (\S+) (\d+)", services()["topics"]["command"][0]))
    used = config.load(COMPOSE.parent / "winnow.yaml", environ={})
    assert made == {**dict.fromkeys([*used.source.topics, used.sink.topic], "8"), used.dead_letters.topic: "1"}
    for service in ("winnow", "generator"):
        assert services()[service]["depends_on"] == {"topics": {"condition": "service_completed_successfully"}}
    assert services()["topics"]["depends_on"] == {"kafka": {"condition": "service_healthy"}}


def test_generator_feeds_the_source() -> None:
    """The generator writes to the topic that Winnow reads, on the broker that Winnow asks."""
    command = services()["generator"]["command"]
    used = config.load(COMPOSE.parent / "winnow.yaml", environ={})
    options = dict(zip(command[3::2], command[4::2], strict=True))
    assert command[:3] == ["python", "-m", "app.demo.feed"]
    assert options == {
        "--bootstrap": used.kafka["bootstrap.servers"],
        "--topic": used.source.topics[0],
        "--rate": "2000",
    }


# The manifests


def test_manifests_are_applied_in_the_order_of_their_names() -> None:
    """`kubectl apply -f k8s/` makes what the application mounts and runs as before the application itself."""
    assert [document["kind"] for _, document in MANIFESTS] == [
        "ConfigMap",
        "Secret",
        "ServiceAccount",
        "Role",
        "RoleBinding",
        "SparkApplication",
    ]
    assert not [document for _, document in MANIFESTS if "namespace" in document["metadata"]]


@pytest.mark.parametrize("document", NATIVE, ids=lambda document: document["kind"])
def test_native_manifest_is_valid(document: Document) -> None:
    """Each manifest of a native kind has only fields that Kubernetes knows, and all that it needs."""
    assert kubernetes_validate.validate(document, KUBERNETES, strict=True) == KUBERNETES


def test_native_typo_is_found() -> None:
    """A misspelt field of a native kind does not pass."""
    planted = copy.deepcopy(of_kind("Role"))
    planted["rules"][0]["verb"] = planted["rules"][0]["verbs"]
    with pytest.raises(kubernetes_validate.ValidationError, match="verb"):
        kubernetes_validate.validate(planted, KUBERNETES, strict=True)


def strict(schema: Document) -> Document:
    """
    Rewrite a schema of a CRD as JSON Schema that knows no other fields.

    The API server prunes unknown fields in silence, and writes "integer or string" as an extension of its own.
    """
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    closed = dict(schema)
    if properties := schema.get("properties"):
        closed["properties"] = {name: strict(child) for name, child in properties.items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            closed.setdefault("additionalProperties", False)
    for inner in ("items", "additionalProperties"):
        if isinstance(schema.get(inner), dict):
            closed[inner] = strict(schema[inner])
    return closed


@pytest.fixture(scope="module")
def operator() -> Any:
    """Make a validator of the operator's own definition."""
    if not CRD.is_file():
        pytest.skip(f"the operator's CRD is not copied into this project, and {CRD} does not exist here")
    (definition,) = documents(CRD)
    (schema,) = [
        version["schema"]["openAPIV3Schema"]
        for version in definition["spec"]["versions"]
        if version["name"] == "v1beta2"
    ]
    return jsonschema.Draft202012Validator(strict(schema))


def problems(operator: Any, document: Document) -> list[str]:
    """List what the operator's definition finds wrong."""
    return [f"{error.json_path}: {error.message}" for error in operator.iter_errors(document)]


def test_application_is_valid(operator: Any) -> None:
    """The SparkApplication has only fields that the operator knows, and all that it needs."""
    assert problems(operator, of_kind("SparkApplication")) == []


def test_application_errors_are_found(operator: Any) -> None:
    """A misspelt field, a missing one and a value that does not exist are each found, at any depth."""
    planted = copy.deepcopy(of_kind("SparkApplication"))
    planted["spec"]["driver"]["memroy"] = planted["spec"]["driver"].pop("memory")
    planted["spec"]["volumes"][0]["emptydir"] = {}
    planted["spec"]["executor"]["secrets"][0] = {"name": "s", "path": "/s"}
    planted["spec"]["mode"] = "clutser"
    del planted["spec"]["sparkVersion"]
    found = "\n".join(sorted(problems(operator, planted)))
    for part in ("'memroy' was unexpected", "'emptydir' was unexpected", "'secretType' is a required", "'clutser'"):
        assert part in found
    assert "'sparkVersion' is a required property" in found


def test_nothing_outlives_a_pod() -> None:
    """There is no checkpoint, no claim and no volume that lasts: Kafka's offsets are all that is remembered."""
    for path, document in MANIFESTS:
        assert document["kind"] != "PersistentVolumeClaim"
        found = keys_and_values(document)
        assert not LASTING_VOLUMES & {key for key, _ in found}, path
        assert not [key for key, _ in found if "checkpoint" in key.lower()], path
        assert not [value for _, value in found if isinstance(value, str) and "checkpoint" in value.lower()], path
    assert all(set(volume) == {"name", "emptyDir"} for volume in application()["volumes"])
    assert {key: value for key, value in application()["sparkConf"].items() if "PersistentVolumeClaim" in key} == {
        "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
        "spark.kubernetes.driver.reusePersistentVolumeClaim": "false",
    }


def test_spark_neither_doubles_nor_abandons_a_task() -> None:
    """No task has a speculative attempt, a killed one is seen to its end, and Python workers live on."""
    conf = application()["sparkConf"]
    assert conf["spark.speculation"] == "false"
    assert conf["spark.task.reaper.enabled"] == "true"
    assert conf["spark.python.worker.reuse"] == "true"
    assert "dynamicAllocation" not in application()


def test_service_is_always_restarted() -> None:
    """Every end is followed by a start, after a wait for both ways to fail: without one the operator gives up."""
    policy = application()["restartPolicy"]
    assert policy["type"] == "Always"
    assert policy["onFailureRetryInterval"] > 0
    assert policy["onSubmissionFailureRetryInterval"] > 0


@pytest.mark.parametrize("role", ["driver", "executor"])
def test_pods_are_restricted(role: str) -> None:
    """Driver and executors meet the restricted Pod Security Standard, on a read-only root."""
    pod, own = application()[role]["podSecurityContext"], application()[role]["securityContext"]
    assert (pod["runAsNonRoot"], pod["runAsUser"], pod["seccompProfile"]) == (True, 185, {"type": "RuntimeDefault"})
    assert own["runAsNonRoot"] is True
    assert own["readOnlyRootFilesystem"] is True
    assert own["allowPrivilegeEscalation"] is False
    assert own["capabilities"] == {"drop": ["ALL"]}
    assert own["seccompProfile"] == {"type": "RuntimeDefault"}
    assert own.get("privileged", False) is False
    assert not {"hostNetwork", "sidecars", "initContainers"} & application()[role].keys()


@pytest.mark.parametrize("role", ["driver", "executor"])
def test_pods_can_write_where_the_image_writes(role: str) -> None:
    """/tmp and the working folder are emptyDirs of a bounded size."""
    emptied = {volume["name"] for volume in application()["volumes"] if volume["emptyDir"]["sizeLimit"]}
    mounted = {mount["mountPath"]: mount["name"] for mount in application()[role]["volumeMounts"]}
    work = re.findall(r"^WORKDIR (.*)$", final_stage(), re.MULTILINE)[-1]
    assert mounted.keys() == {"/tmp", work}
    assert set(mounted.values()) <= emptied


@pytest.mark.parametrize("role", ["driver", "executor"])
def test_pods_have_room_and_time(role: str) -> None:
    """Requests and limits are set, Python workers fit beside the heap, and a stop has thirty seconds."""
    part = application()[role]
    workers = part["cores"] if role == "executor" else 1
    assert {"coreRequest", "coreLimit", "memory", "memoryOverhead"} <= part.keys()
    assert mebibytes(part["memoryOverhead"]) >= workers * WORKER_MIB
    assert part["terminationGracePeriodSeconds"] == 30
    assert "spark.executor.pyspark.memory" not in application()["sparkConf"]


def test_executors_are_two_of_two_slots() -> None:
    """Four source partitions are owned at once."""
    assert (application()["executor"]["instances"], application()["executor"]["cores"]) == (2, 2)


def test_driver_may_do_little() -> None:
    """The driver may manage pods, make and remove its configmaps, and remove its service: no more, and no wildcard."""
    role = of_kind("Role")
    assert all(rule["apiGroups"] == [""] for rule in role["rules"])
    assert {tuple(rule["resources"]): set(rule["verbs"]) for rule in role["rules"]} == {
        ("pods",): {"create", "get", "list", "watch", "patch", "delete", "deletecollection"},
        ("configmaps",): {"create", "deletecollection"},
        ("services",): {"deletecollection"},
    }


def test_names_meet() -> None:
    """Each thing that a manifest refers to by name is made by another one."""
    spec, binding = application(), of_kind("RoleBinding")
    assert spec["driver"]["serviceAccount"] == of_kind("ServiceAccount")["metadata"]["name"]
    assert [subject["name"] for subject in binding["subjects"]] == [spec["driver"]["serviceAccount"]]
    assert binding["roleRef"]["name"] == of_kind("Role")["metadata"]["name"]
    for role in ("driver", "executor"):
        assert spec[role]["configMaps"] == [{"name": of_kind("ConfigMap")["metadata"]["name"], "path": "/etc/winnow"}]
        (secret,) = spec[role]["secrets"]
        assert secret == {
            "name": of_kind("Secret")["metadata"]["name"],
            "path": "/etc/winnow/secrets",
            "secretType": "Generic",
        }


def test_application_runs_what_the_image_holds() -> None:
    """The application's image, program, command and Spark are those that the Dockerfile builds."""
    spec = application()
    folder = re.findall(r"^COPY .*docker/main\.py.* (\S+)$", final_stage(), re.MULTILINE)[0]
    assert spec["mainApplicationFile"] == f"local://{folder}main.py"
    assert spec["arguments"] == ["run", "-c", "/etc/winnow/winnow.yaml"]
    assert (spec["type"], spec["mode"]) == ("Python", "cluster")
    assert f"pyspark=={spec['sparkVersion']} " in (ROOT / "docker/requirements.lock").read_text("utf-8")
    assert spec["image"] == services()["winnow"]["image"] == f"winnow:{version()}"


def test_secrets_stand_in_the_secret_only() -> None:
    """No value of the Secret is written anywhere else: not for Spark, not in a configuration, not for Compose."""
    values = [value.strip() for value in of_kind("Secret")["stringData"].values()]
    files = [path for folder in ("k8s", "docker") for path in (ROOT / folder).iterdir() if path.name != "secret.yaml"]
    assert all(len(value) > 8 for value in values)
    assert len(files) > 3
    for path in files:
        text = path.read_text("utf-8")
        assert not [
            value for value in values if any(line.strip() in text for line in value.splitlines() if "-----" not in line)
        ]


def test_secrets_are_read_from_mounted_files() -> None:
    """Each path below the Secret's mount is one of its keys, and no setting holds a password itself."""
    secret = of_kind("Secret")["stringData"].keys()
    kafka = yaml.safe_load(of_kind("ConfigMap")["data"]["winnow.yaml"])["kafka"]
    named = [*kafka.values(), *application()["sparkConf"].values()]
    paths = {value for value in named if isinstance(value, str) and value.startswith("/etc/winnow/secrets/")}
    assert {Path(path).name for path in paths} == set(secret)
    assert not [key for key in kafka if "password" in key and not key.endswith(".file")]
    shown = {key for key in application()["sparkConf"] if re.search("secret|password|token", key)}
    assert all(key.endswith(".file") for key in shown)


# The configurations


def loaded(text: str, folder: Path) -> Config:
    """Read a configuration as the command would."""
    file = folder / "winnow.yaml"
    file.write_text(text, "utf-8")
    return config.load(file, environ={})


@pytest.mark.parametrize("where", ["compose", "k8s"])
def test_deployed_configuration_is_valid(where: str, tmp_path: Path) -> None:
    """The product accepts what is deployed: exactly once, from the beginning, with the access log's parser."""
    text = {
        "compose": (ROOT / "docker/winnow.yaml").read_text("utf-8"),
        "k8s": of_kind("ConfigMap")["data"]["winnow.yaml"],
    }[where]
    found = loaded(text, tmp_path)
    assert found.delivery_guarantee.value == "exactly-once"
    assert found.starting_offsets == "earliest"
    assert found.parser.name == "idc-access-log"


def test_cluster_configuration_leaves_spark_to_the_application(tmp_path: Path) -> None:
    """In the cluster no key of the configuration says where Spark runs."""
    assert loaded(of_kind("ConfigMap")["data"]["winnow.yaml"], tmp_path).spark == {}
