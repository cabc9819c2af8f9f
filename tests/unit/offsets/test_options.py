"""The options of a store: all problems at once, and no secret in a message."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.offsets.failures import StoreOptionError
from app.offsets.options import Options


def problems(options: Options) -> str:
    with pytest.raises(StoreOptionError) as caught:
        options.raise_problems()
    return str(caught.value)


def test_right_options_pass(tmp_path: Path) -> None:
    """Values come back in the needed type; a secret from a file loses its final line ending, and nothing else."""
    file = tmp_path / "password"
    file.write_text(" hunter2 \r\n")
    options = Options()

    assert "h" == options.text("host", "h")
    assert 9090 == options.number("port", "9090", most=65535)
    assert "end" == options.choice("position", "end", ("start", "end"))
    assert "redis://h" == options.url("url", "redis://h", ("redis",))
    assert " hunter2 " == options.secret("password", None, str(file)) == options.secret("password", " hunter2 ", None)
    assert "" == options.secret("password", None, None)
    options.raise_problems()


def test_all_problems_are_named_at_once(tmp_path: Path) -> None:
    """One run lists every problem."""
    options = Options()
    options.text("host", 5)
    options.number("port", "x", most=9)
    options.number("workers", True, most=9)
    options.choice("position", "middle", ("start", "end"))
    options.url("url", "hunter2@h", ("redis", "rediss"))
    options.secret("password", "hunter2", "/f")
    options.secret("token", None, str(tmp_path / "no"))

    told = problems(options)

    assert "hunter2" not in told
    assert [
        "host must be non-empty text; put a number in quotes",
        "port must be a whole number from 1 to 9, not 'x'",
        "workers must be a whole number from 1 to 9, not True",
        "position must be end or start, not 'middle'",
        "url must be a URL, redis://… or rediss://…",
        "password and password.file are both set: keep the file",
        f"token.file cannot be read: {tmp_path / 'no'}: No such file or directory",
    ] == told.removeprefix("\n  - ").split("\n  - ")


def test_a_binary_secret_is_refused(tmp_path: Path) -> None:
    """A file that is not text is named, but not quoted."""
    file = tmp_path / "password"
    file.write_bytes(b"\xff\xfe")
    options = Options()
    options.secret("password", None, str(file))

    assert f"password.file cannot be read: {file}: it is not text" == problems(options)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("redis://:hun/ter2@host:6379/0", "has no readable host: percent-encode the password, such as %2F for /"),
        ("redis://:hun#ter2@host:6379/0", "has no readable host: percent-encode the password, such as %2F for /"),
        ("hunter2", "must be a URL, redis://…"),
    ],
)
def test_a_password_that_breaks_its_url_is_not_repeated(url: str, problem: str) -> None:
    """Other tools would print half of the password as an invalid port."""
    options = Options()
    options.url("url", url, ["redis"])

    assert f"url {problem}" == problems(options)
