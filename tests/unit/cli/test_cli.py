"""The command line: output, errors and exit codes."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import IO

import click
import pytest
from click.testing import CliRunner

from app.cli import main
from app.cli.options import reports_errors
from tests.fakes.parsers import WRONG, Wrong
from tests.independent import cleansed, line
from tests.support.configuration import file_of
from tests.support.packages import install
from tests.unit.config.good import GOOD, TEXT


@pytest.fixture
def runner() -> CliRunner:
    return CliRunner()


WIDTH = 72


def on_terminal(*arguments: str, stderr: IO[bytes] | None) -> tuple[int, list[str]]:
    """Run a command on a terminal, to which its errors go as well by default. Return its code and what is shown."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(WIDTH), "TERM": "xterm"}
    command = [sys.executable, "-m", "app.cli", *arguments]
    with subprocess.Popen(command, stdout=theirs, stderr=stderr or theirs, env=environment) as running:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # a terminal whose last program has ended
            while some := os.read(ours, 1 << 16):
                shown += some
    os.close(ours)
    return running.returncode, re.sub(r"\x1b\[[0-9;]*m", "", shown.decode()).splitlines()


SHOWS = (
    "from app.cli.layout import View; from app.cli.options import reports_errors; from app.cli.tables import show; "
    "reports_errors(lambda: show(View(('#LAG',), [[1]], {}), as_json=False))()"
)


@pytest.mark.parametrize("arguments", [["-m", "app.cli", "parsers"], ["-c", SHOWS]], ids=["text", "table"])
def test_who_reads_the_output_may_end(arguments: list[str]) -> None:
    """`winnow lag | head -1` finds nothing: 1 would be a false alarm in a script with `set -o pipefail`."""
    ours, theirs = os.pipe()
    os.close(ours)

    done = subprocess.run([sys.executable, *arguments], stdout=theirs, stderr=subprocess.PIPE, check=False)

    os.close(theirs)
    assert (141, b"") == (done.returncode, done.stderr)


@pytest.mark.parametrize("number", [errno.EDQUOT, errno.EFBIG, errno.EIO])
def test_no_error_of_the_outputs_disk_is_a_finding(number: int) -> None:
    """A quota stops a report as a full disk does."""

    @reports_errors
    def command() -> int:
        raise OSError(number, os.strerror(number))

    with pytest.raises(SystemExit) as ended:
        command()

    assert 3 == ended.value.code


@pytest.mark.parametrize(
    ("arguments", "full", "code"),
    [
        (["parsers"], ["stdout"], 3),
        (["config", "--schema"], ["stdout", "stderr"], 3),
        (["check", "-c", "{}"], ["stderr"], 2),
    ],
    ids=["output", "both", "error"],
)
def test_a_full_disk_is_no_finding(arguments: list[str], full: list[str], code: int, tmp_path: Path) -> None:
    """Nor does it hide the code of an error: a process manager does not start a wrong configuration again."""
    file = tmp_path / "winnow.yaml"
    file.write_text("nonsense: 1")
    command = [sys.executable, "-m", "app.cli", *(each.format(file) for each in arguments)]
    with Path("/dev/full").open("wb") as disk:
        stdout, stderr = (disk if each in full else subprocess.PIPE for each in ("stdout", "stderr"))
        done = subprocess.run(command, stdout=stdout, stderr=stderr, check=False)

    assert code == done.returncode
    assert done.stderr in (None, b"winnow: [Errno 28] No space left on device\n")


ASKS = (
    "import sys; from app.cli import main; from app.cli.screen import Keys; main.callback(); "
    "print(sys.stdin.isatty(), Keys().pressed(0))"
)


@pytest.mark.parametrize(
    ("arguments", "output"), [(["-m", "app.cli", "parse"], b""), (["-c", ASKS], b"False \n")], ids=["reads", "asks"]
)
def test_a_closed_stdin_is_an_empty_one(arguments: list[str], output: bytes) -> None:
    """As some supervisors start a command. Python has no `sys.stdin` then."""
    command = ["sh", "-c", 'exec "$@" <&-', "sh", sys.executable, *arguments]

    done = subprocess.run(command, capture_output=True, check=False)

    assert (0, output, b"") == (done.returncode, done.stdout, done.stderr)


class TestParse:
    def test_cleansed_lines_go_to_stdout_in_order(self, runner: CliRunner) -> None:
        """If all lines are good, the exit code is 0. A missing final newline and CRLF do not matter."""
        done = runner.invoke(main, ["parse"], input=b"\r\n".join([line(1), line(2), line(3)]))

        assert 0 == done.exit_code
        assert b"".join(cleansed(n) + b"\n" for n in (1, 2, 3)) == done.stdout_bytes

    def test_rejects_go_to_stderr_as_json(self, runner: CliRunner, tmp_path: Path) -> None:
        """Each reject is an object with its line, reason and detail; the exit code is 1."""
        file = tmp_path / "lines"
        file.write_bytes(b"\n".join([line(1), b"rubbish", b"", line(4), b""]))

        done = runner.invoke(main, ["parse", str(file)])

        assert 1 == done.exit_code
        assert cleansed(1) + b"\n" + cleansed(4) + b"\n" == done.stdout_bytes
        rejects = [json.loads(text) for text in done.stderr.splitlines()]
        assert [(2, "no_marker"), (3, "empty")] == [(one["line"], one["reason"]) for one in rejects]
        assert all(set(one) == {"line", "reason", "detail"} for one in rejects)

    @pytest.mark.parametrize("to_a_file", [False, True])
    def test_a_terminal_gets_a_table_of_the_rejects(self, tmp_path: Path, to_a_file: bool) -> None:
        """By reason, with the first line of each, which cannot move the cursor. A file still gets JSON."""
        file, errors = tmp_path / "lines", tmp_path / "errors"
        bad = line(3).replace(b"<<<!>>>80", b"<<<!>>>x")
        file.write_bytes(b"\n".join([line(1), b"\x1b[2Jrubbish", b"", *[b"x" * 300] * 4, line(2), bad, line(4)]))

        with errors.open("wb") as opened:
            code, shown = on_terminal("parse", str(file), stderr=opened if to_a_file else None)

        assert (1, [cleansed(n).decode() for n in (1, 2, 4)]) == (code, shown[:3])
        if to_a_file:
            assert (3, 7) == (len(shown), len(errors.read_text().splitlines()))
            return
        table = " ".join(" ".join(shown[3:]).split())
        assert table.startswith("REASON LINES SHARE FIRST DETAIL LINE no_marker 5 50.0% 2 the line does not begin and ")
        assert (
            r" \x1b[2Jrubbish empty 1 10.0% 3 the line is empty destport 1 10.0% 9 destport is 'x', not a port" in table
        )
        assert table.endswith("7 of 10 lines are rejected")
        assert max(map(len, shown[3:])) <= WIDTH

    def test_json_has_every_line_in_order(self, runner: CliRunner) -> None:
        """With --json every line gives one object with its outcome; numbering continues over batches."""
        lines = (line(1) + b"\n") * 10_000 + b"rubbish\n" + line(2)

        done = runner.invoke(main, ["parse", "--json"], input=lines)

        assert 1 == done.exit_code
        rows = [json.loads(text) for text in done.stdout.splitlines()]
        assert list(range(1, 10_003)) == [row["line"] for row in rows]
        assert {"line": 1, "output": cleansed(1).decode()} == rows[0]
        assert (10_001, "no_marker") == (rows[10_000]["line"], rows[10_000]["reason"])
        assert cleansed(2).decode() == rows[10_001]["output"]

    def test_numbers_go_on_from_batch_to_batch(self, runner: CliRunner) -> None:
        """Line numbers are those of the file, even after the first batch."""
        done = runner.invoke(main, ["parse", "-"], input=(line(1) + b"\n") * 25_000 + b"x\n")

        assert 25_001 == json.loads(done.stderr)["line"]

    def test_an_empty_file(self, runner: CliRunner) -> None:
        """An empty file has no lines, so none is rejected."""
        done = runner.invoke(main, ["parse"], input=b"")

        assert (0, b"") == (done.exit_code, done.stdout_bytes)

    def test_another_parser_can_be_chosen(self, runner: CliRunner, tmp_path: Path) -> None:
        """With -c the configuration's parser is used."""
        parser = {"name": "delimited", "fields": ["a", "b"], "separator": ",", "output": "{b}|{a}"}
        file = file_of(GOOD | {"parser": parser}, tmp_path)

        done = runner.invoke(main, ["parse", "-c", str(file)], input=b"1,2\n")

        assert b"2|1\n" == done.stdout_bytes

    def test_it_needs_the_section_of_the_parser_only(self, runner: CliRunner, tmp_path: Path) -> None:
        """Whoever tries a parser has no topics yet; what is wrong in the section is said with its line."""
        file = tmp_path / "p.yaml"
        file.write_text("sorce: {}\nparser:\n  name: delimited\n  fields: [a, b]\n  output: '{b}'\n  separator: ','\n")

        done = runner.invoke(main, ["parse", "-c", str(file)], input=b"1,2\n")
        wrong = runner.invoke(main, ["parse", "-c", str(file), "--set", "parser.seperator=;"], input=b"1,2\n")

        assert b"2\n" == done.stdout_bytes, done.stderr
        assert 2 == wrong.exit_code
        assert "parser.seperator: " in wrong.stderr
        assert "did you mean 'separator'?" in wrong.stderr
        assert wrong.stderr.endswith("(--set parser.seperator)\n")

    @pytest.mark.parametrize("what", ["a line too few", "nothing"])
    def test_a_wrong_parser_loses_no_line(self, runner: CliRunner, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
        """Its lines are rejects, as in the service."""
        monkeypatch.setattr("parsers.registry.load", lambda *_: Wrong(WRONG[what]))

        done = runner.invoke(main, ["parse"], input=line(1) + b"\n" + line(2))
        as_json = runner.invoke(main, ["parse", "--json"], input=line(1) + b"\n" + line(2))

        assert (1, b"") == (done.exit_code, done.stdout_bytes)
        rejects = [json.loads(text) for text in done.stderr.splitlines()]
        assert [(1, "parser_error"), (2, "parser_error")] == [(one["line"], one["reason"]) for one in rejects]
        assert (1, done.stderr) == (as_json.exit_code, as_json.stdout)

    def test_neither_kafka_nor_spark_is_loaded(self) -> None:
        """`winnow parse` works where neither is installed."""
        program = (
            "import sys; sys.argv = ['winnow', 'parse']\n"
            "try:\n    from app.cli import main; main()\n"
            "except SystemExit: pass\n"
            "print({'pyspark', 'py4j', 'confluent_kafka'} & set(sys.modules))"
        )

        done = subprocess.run([sys.executable, "-c", program], input=line(1), capture_output=True, check=True)

        assert done.stdout.endswith(b"set()\n")


class TestFile:
    """Which file is read if none is named."""

    def group(self, *arguments: str) -> str:
        done = CliRunner().invoke(main, ["config", *arguments])
        return done.stdout.partition("\n")[0] or done.stderr

    def test_the_one_in_the_working_directory(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A variable names another, and -c wins over both."""
        monkeypatch.chdir(tmp_path)
        for name in ("winnow.yaml", "other.yaml", "third.yaml"):
            Path(name).write_text(TEXT)

        assert self.group().endswith("# winnow.yaml:1")
        monkeypatch.setenv("WINNOW_CONFIG", "other.yaml")
        assert self.group().endswith("# other.yaml:1")
        assert self.group("-c", "third.yaml").endswith("# third.yaml:1")
        monkeypatch.setenv("WINNOW_CONFIG", "none.yaml")
        assert "configuration: none.yaml: No such file or directory\n" == self.group()

    def test_there_is_none(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The error says where one may be."""
        monkeypatch.chdir(tmp_path)

        said = "there is none: name a file with -c or in WINNOW_CONFIG, or write ./winnow.yaml, as winnow init does"
        assert f"configuration: {said}\n" == self.group()


WRONG_EVERYWHERE = """\
group.id: idc-cleansing
source: {topics: [raw-logs]}
sink: {topc: clean-logs}
dead.letters: {topic: raw-logs.dlq}
kafka:
  bootstrap.servers: localhost:9092
  linger.mss: 5
parser:
  name: delimited
  fields: [a, b]
  seperator: ","
offsets:
  mirrors:
    - name: redis
      urll: redis://:hunter2@cache
    - {name: reddis}
    - {name: none}
    - {name: kafka}
  store: {name: kafka, path: /x}
"""


def started(file: Path) -> subprocess.CompletedProcess[str]:
    """Run `winnow run` with a service that only prints its options, and whether PySpark is loaded."""
    program = (
        f"import sys; sys.argv = ['winnow', 'run', '-c', {str(file)!r}]\n"
        "from app import start\n"
        "class Service:\n"
        "    def run(self, **options): print('pyspark' in sys.modules); return 0\n"
        "start.service = lambda *_, options: print(options) or Service()\n"
        "from app.cli import main; main()\n"
    )
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)


def test_the_page_does_not_wait_for_the_import_of_pyspark(tmp_path: Path) -> None:
    """It takes seconds on a busy machine. The page is up when the service runs, and asks for Spark later."""
    file = file_of(GOOD, tmp_path)

    assert f"-c {file}\nFalse\n" == started(file).stdout


def test_a_service_warns_of_secrets_that_others_can_read(tmp_path: Path) -> None:
    file = file_of(GOOD | {"kafka": GOOD["kafka"] | {"ssl.key.password": "hunter2"}}, tmp_path)

    (said,) = started(file).stderr.splitlines()

    assert "preflight_warning" in said
    assert "use ssl.key.password.file: /path" in said
    assert "hunter2" not in said


KEYS = ("source", "houseid", "destport", "domainname")


class TestCheck:
    def test_the_last_line_says_that_all_is_right(self, runner: CliRunner, tmp_path: Path) -> None:
        """Values are not shown: `config` does that."""
        file = file_of(GOOD, tmp_path)

        done = runner.invoke(main, ["check", "-c", str(file)], env={"WINNOW_KAFKA__SASL_PASSWORD": "hunter2"})

        assert 0 == done.exit_code
        clients, verdict = done.stdout.splitlines()
        assert clients.startswith("ok       clients: bulk, because Numba and librdkafka")
        assert f"ok       {file} is right" == verdict

    def test_a_key_is_a_field_of_the_output(self, runner: CliRunner, tmp_path: Path) -> None:
        """An unknown field in sink.key is a configuration problem that names the nearest field."""
        file = file_of(TEXT, tmp_path)

        codes = {key: runner.invoke(main, ["check", "-c", str(file), "--set", f"sink.key={key}"]) for key in KEYS}

        assert {"source": 0, "houseid": 0, "destport": 0, "domainname": 2} == {
            key: done.exit_code for key, done in codes.items()
        }
        assert "configuration: sink.key: the parser's lines have no field 'domainname'" in codes["domainname"].stderr

    def test_an_error_of_an_own_parser_shows_no_option(
        self, runner: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Any of them may be a secret. What is quoted of a built-in parser's options is none."""
        parser = "def own(salt):\n    raise ValueError(f'{salt} is too short')"
        install(tmp_path, "somebodys_salt", parser, "[winnow.parsers]\nown = somebodys_salt:own")
        monkeypatch.syspath_prepend(tmp_path)
        own, built_in = {"name": "own", "salt": "hunter2"}, {"name": "regex", "pattern": "(?P<a>x)", "output": "{abc}"}

        said = [
            runner.invoke(main, ["check", "-c", str(file_of(GOOD | {"parser": parser}, tmp_path))]).stderr
            for parser in (own, built_in)
        ]

        assert "parser own: does not accept its options: *** is too short" in said[0]
        assert "output: no field 'abc'" in said[1]

    def test_json_has_the_values_with_their_origins(self, runner: CliRunner, tmp_path: Path) -> None:
        """One object with values, backend and findings, and no secret."""
        file = file_of(TEXT, tmp_path)

        done = runner.invoke(main, ["check", "-c", str(file), "--json"], env={"WINNOW_KAFKA__SASL_PASSWORD": "hunter2"})

        found = json.loads(done.stdout)
        assert (0, [], []) == (done.exit_code, found["problems"], found["findings"])
        assert {"key": "sink.topic", "value": "clean-logs", "origin": f"{file}:6"} in found["values"]
        assert found["clients"].startswith("bulk")
        assert "hunter2" not in done.output

    def test_json_has_every_problem(self, runner: CliRunner, tmp_path: Path) -> None:
        """A wrong configuration exits with 2 and is still one JSON object."""
        file = file_of(GOOD | {"sorce": 1, "out.of.range": "perhaps"}, tmp_path)

        done = runner.invoke(main, ["check", "-c", str(file), "--json"])

        assert 2 == done.exit_code
        assert 2 == len(json.loads(done.stdout)["problems"])

    def test_samples_are_tried(self, runner: CliRunner, tmp_path: Path) -> None:
        """A sample with another result is reported with the expected and the actual one; the exit code is 1."""
        good = [
            {"line": line(1).decode(), "output": cleansed(1).decode()},
            {"line": "rubbish", "reason": "no_marker"},
        ]
        wrong = [{"line": "rubbish", "output": "x"}, {"line": "", "reason": "no_marker"}]
        file = file_of(GOOD | {"parser": {"samples": good}}, tmp_path)
        fine = runner.invoke(main, ["check", "-c", str(file)])
        file_of(GOOD | {"parser": {"samples": good + wrong}}, tmp_path)
        failing, as_json = (runner.invoke(main, ["check", "-c", str(file), *more]) for more in ([], ["--json"]))

        assert (0, 1) == (fine.exit_code, failing.exit_code), fine.output
        assert fine.stdout.endswith(" is right, and all 2 samples give what they should\n")
        assert "is right" not in failing.stdout
        first, second = [each["what"] for each in json.loads(as_json.stdout)["findings"]]
        assert first.startswith("parser.samples[2]: expected the line 'x', got the reason no_marker (")
        assert second.startswith("parser.samples[3]: expected the reason no_marker, got the reason empty (")

    def test_a_parser_that_exits_fails_its_samples(
        self, runner: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It does not end `check` with its own code."""
        sample = {"line": line(1).decode(), "output": cleansed(1).decode()}
        file = file_of(GOOD | {"parser": {"samples": [sample]}}, tmp_path)
        monkeypatch.setattr("parsers.registry.load", lambda *_: Wrong(lambda _: sys.exit(0)))

        done = runner.invoke(main, ["check", "-c", str(file)])

        assert 1 == done.exit_code
        assert "SystemExit: 0" in done.stdout

    def test_the_first_difference_of_a_sample_is_marked(self, runner: CliRunner, tmp_path: Path) -> None:
        """Two long lines that differ in a character look alike."""
        wrong = cleansed(1).decode().replace("|", "I", 1)
        file = file_of(GOOD | {"parser": {"samples": [{"line": line(1).decode(), "output": wrong}]}}, tmp_path)

        done = runner.invoke(main, ["check", "-c", str(file)])

        _, title, expected, got, mark = done.stdout.splitlines()
        assert "fails    parser.samples[0] has another result" == title
        assert f"         expected  the line '{wrong}'" == expected
        assert f"         got       the line '{cleansed(1).decode()}'" == got
        assert ("I", "|") == (expected[mark.index("^")], got[mark.index("^")])

    @pytest.mark.parametrize(
        "sample", [{"line": "x"}, {"line": "x", "output": "y", "reason": "empty"}, {"output": "x"}]
    )
    def test_a_sample_expects_one_thing(self, runner: CliRunner, tmp_path: Path, sample: dict[str, str]) -> None:
        """A sample needs a line and either an output or a reason."""
        file = file_of(GOOD | {"parser": {"samples": [sample]}}, tmp_path)

        done = runner.invoke(main, ["check", "-c", str(file)])

        assert 2 == done.exit_code
        assert "parser.samples" in done.stderr

    def test_every_problem_is_printed_and_the_code_is_2(self, runner: CliRunner, tmp_path: Path) -> None:
        """Every command exits with 2 for a wrong configuration."""
        file = file_of(GOOD | {"sorce": 1, "out.of.range": "perhaps"}, tmp_path)

        for command in ("check", "run"):
            done = runner.invoke(main, [command, "-c", str(file)])
            assert 2 == done.exit_code
            assert "sorce: unknown key; did you mean source?" in done.stderr
            assert "out.of.range" in done.stderr

    @pytest.mark.parametrize("parser", [{"name": "idc-acess-log"}, {"name": "idc-access-log", "colour": "red"}])
    def test_a_parser_that_cannot_be_built_is_a_configuration_error(
        self, runner: CliRunner, tmp_path: Path, parser: dict[str, str]
    ) -> None:
        """A parser that cannot be built is reported before anything starts."""
        file = file_of(GOOD | {"parser": parser}, tmp_path)

        done = runner.invoke(main, ["check", "-c", str(file)])

        assert 2 == done.exit_code
        assert "parser" in done.stderr

    @pytest.mark.parametrize(
        "wrong",
        [
            "linger.mss=1",
            "message.max.bytes=rubbish",
            "linger.ms=0x10",
            "ssl.ca.location=/no/such/ca.crt",
            "ssl.key.pem=rubbish",
            "sasl.password.file=/no/such",
        ],
    )
    def test_what_librdkafka_refuses_ends_with_2(self, runner: CliRunner, tmp_path: Path, wrong: str) -> None:
        """A property that librdkafka rejects is one line, before anything starts or connects."""
        kafka = {"bootstrap.servers": "127.0.0.1:1", "security.protocol": "ssl"}
        file = file_of(GOOD | {"kafka": kafka}, tmp_path)

        for command in ("check", "run"):
            done = runner.invoke(main, [command, "-c", str(file), "--set", f"kafka.{wrong}"])
            assert 2 == done.exit_code
            (problem,) = done.stderr.splitlines()
            assert problem.startswith(f"configuration: kafka.{wrong.partition('=')[0]}")
            assert "rubbish" not in problem

    @pytest.mark.parametrize("seconds", [10, 300])
    def test_a_timeout_is_compared_with_the_configured_transactions(
        self, runner: CliRunner, tmp_path: Path, seconds: int
    ) -> None:
        """Not with the default's 60 s: a service whose producers librdkafka refuses would try again for ever."""
        own = ["--set", "kafka.message.timeout.ms=120000", "--set", f"transaction.timeout={seconds}s"]

        done = runner.invoke(main, ["check", "-c", str(file_of(GOOD, tmp_path)), *own])

        assert (2 if seconds == 10 else 0) == done.exit_code, done.stderr

    def test_every_problem_comes_with_its_line_and_the_nearest_name(self, runner: CliRunner, tmp_path: Path) -> None:
        """Those of our keys, of librdkafka's properties and of the parser's options, in one run."""
        file, unknown = file_of(WRONG_EVERYWHERE, tmp_path), "fetch.wait.max.mss"

        for command in ("check", "run"):
            done = runner.invoke(main, [command, "-c", str(file), "--set", f"kafka.{unknown}=1"])
            assert 2 == done.exit_code
            assert [
                f"sink.topic is missing: set it in {file}, as WINNOW_SINK__TOPIC, or with --set sink.topic=...",
                f"sink.topc: unknown key; did you mean sink.topic? ({file}:3)",
                f"parser.seperator: parser delimited: no option 'seperator'; did you mean 'separator'? ({file}:11)",
                f"parser: parser delimited: option 'output' is missing: write output: … ({file}:9)",
                f"offsets.store.path: offset store kafka: no option 'path'; known: none ({file}:19)",
                f"offsets.mirrors[0].urll: offset store redis: no option 'urll'; did you mean 'url'? ({file}:15)",
                f"offsets.mirrors[0]: offset store redis: option 'url' is missing: write url: … ({file}:14)",
                f"offsets.mirrors[1].name: no offset store is called 'reddis'; did you mean 'redis'? ({file}:16)",
                f"offsets.mirrors[2]: none stores nothing that a tool could read ({file}:17)",
                f"kafka.linger.mss is unknown to librdkafka: did you mean linger.ms? ({file}:7)",
                f"kafka.{unknown} is unknown to librdkafka: did you mean fetch.wait.max.ms? (--set kafka.{unknown})",
            ] == [each.removeprefix("configuration: ") for each in done.stderr.splitlines()]

    def test_a_value_that_the_parser_refuses_has_its_line(self, runner: CliRunner, tmp_path: Path) -> None:
        """The parser names the option, whichever way it is written."""
        parser = "parser:\n  name: delimited\n  fields: [a, b]\n  output-separator: xx\n  output: 5\n"
        file = file_of(TEXT + parser, tmp_path)

        done = runner.invoke(main, ["lag", "-c", str(file)])

        assert 2 == done.exit_code
        assert [
            f"parser.output: parser delimited: output must be text such as '{{a}}|{{b}}', not 5 ({file}:15)",
            f"parser.output-separator: parser delimited: output.separator must be one ASCII character, not 'xx' ({file}:14)",
        ] == [each.removeprefix("configuration: ") for each in done.stderr.splitlines()]

    def test_an_unreachable_kafka_ends_with_3(
        self, runner: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """`check --connect` does not wait for Kafka, but reports the error at once."""
        monkeypatch.setattr("app.kafka.admin.ANSWER_SECONDS", 0.3)
        file = file_of(GOOD | {"kafka": {"bootstrap.servers": "127.0.0.1:1"}}, tmp_path)

        done = runner.invoke(main, ["check", "-c", str(file), "--connect"])

        assert 3 == done.exit_code
        assert "Kafka is not responding" in done.stderr


class TestConfig:
    def test_each_value_with_its_origin(self, runner: CliRunner, tmp_path: Path) -> None:
        """Text output is YAML with comments, JSON output a list. Both mask secrets, and nothing is built."""
        file = file_of(TEXT + "parser: {name: nobody-has-it}\n", tmp_path)
        secret = ["--set", "kafka.sasl.password=hunter2"]

        text = runner.invoke(main, ["config", "-c", str(file), *secret])
        listed = runner.invoke(main, ["config", "-c", str(file), "--json", *secret])

        assert (0, 0) == (text.exit_code, listed.exit_code)
        assert f"  topic: clean-logs  # {file}:6" in text.stdout.splitlines()
        values = json.loads(listed.stdout)["values"]
        assert {"key": "parser.name", "value": "nobody-has-it", "origin": f"{file}:11"} in values
        assert {"key": "log.level", "value": "info", "origin": "default"} in values
        assert {"key": "kafka.sasl.password", "value": "***", "origin": "--set kafka.sasl.password"} in values
        assert "hunter2" not in text.output + listed.output

    def test_the_schema(self, runner: CliRunner) -> None:
        """The schema needs no configuration."""
        done = runner.invoke(main, ["config", "--schema"])

        assert 0 == done.exit_code
        assert "group.id" in json.loads(done.stdout)["properties"]


@pytest.mark.parametrize("charset", ["latin-1", "iso8859-2"])
def test_json_is_utf_8_whatever_the_terminal_takes(charset: str, tmp_path: Path) -> None:
    """A character that the terminal's encoding lacks, or has as another byte, is no reason for broken JSON."""
    strange, runner = "ä清😀", CliRunner(charset=charset)
    parser = {"name": "delimited", "fields": ["a"], "separator": ",", "output": "{a}"}
    options = ["-c", str(file_of(GOOD | {"parser": parser}, tmp_path)), "--set", f"group.id={strange}", "--json"]

    listed, checked = (runner.invoke(main, [command, *options]) for command in ("config", "check"))
    parsed = runner.invoke(main, ["parse", *options], input=strange.encode())

    for done in (listed, checked):
        values = {each["key"]: each["value"] for each in json.loads(done.stdout_bytes)["values"]}
        assert strange == values["group.id"]
    assert {"line": 1, "output": strange} == json.loads(parsed.stdout_bytes)


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "--nonsense"],
        ["frobnicate"],
        ["parse", "/no/such/file"],
        ["demo", "--rate", "5"],
        ["demo", "--records", "0"],
    ],
)
def test_wrong_usage_ends_with_2(runner: CliRunner, arguments: list[str]) -> None:
    """The exit code tells a typo from a reject."""
    assert 2 == runner.invoke(main, arguments).exit_code


def test_an_interrupted_command_has_found_nothing(runner: CliRunner) -> None:
    """Its exit code is the one of shells: 1 would say that an audit has findings."""

    @click.command()
    @reports_errors
    def interrupted() -> int:
        raise KeyboardInterrupt

    done = runner.invoke(interrupted)

    assert (130, "\nwinnow: interrupted\n") == (done.exit_code, done.stderr)


@pytest.mark.usefixtures("third_party_store")
def test_a_store_outside_transactions_is_refused_for_exactly_once(runner: CliRunner, tmp_path: Path) -> None:
    """Only at-least-once may use a store whose offsets do not move with their records."""
    file = file_of(TEXT, tmp_path)
    store = ["--set", "offsets={store: {name: dictionary, url: x}}"]

    refused = runner.invoke(main, ["check", "-c", str(file), *store])
    allowed = runner.invoke(main, ["check", "-c", str(file), *store, "--set", "delivery.guarantee=at-least-once"])

    assert 2 == refused.exit_code
    assert "offsets.store.name is dictionary, which cannot join Kafka's transactions" in refused.stderr
    assert 0 == allowed.exit_code


def test_a_store_is_listed_once(runner: CliRunner, tmp_path: Path) -> None:
    """Two copies of one offset in one place would be one."""
    file = file_of(TEXT + "offsets.mirrors: [{name: kafka}]\n", tmp_path)

    done = runner.invoke(main, ["lag", "-c", str(file)])

    assert 2 == done.exit_code
    said = "offsets.mirrors[0]: kafka already holds these offsets; list each store once"
    assert f"configuration: {said} ({file}:11)\n" == done.stderr

    store = "{store: {name: files, url: 'file:///a'}, mirrors: [{name: kafka}]}"
    settings = ("delivery.guarantee=at-least-once", f"offsets={store}", "sink.kafka.bootstrap.servers=elsewhere:1")
    implied = runner.invoke(main, ["lag", "-c", str(file), *(word for each in settings for word in ("--set", each))])
    assert 2 == implied.exit_code
    assert said in implied.stderr
