"""Debian's headless Chromium, driven over a pipe with the DevTools protocol: no driver program, no open port."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
from pathlib import Path
from typing import Any, Self

from tests.support.waiting import PATIENCE, until

PROGRAM = shutil.which("chromium")
FLAGS = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-sandbox",  # tests may run as root in a container
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
)

Message = dict[str, Any]


class Browser:
    """
    One page. A context manager that leaves no process behind.

    Args:
        folder: for its profile.
        width: of the page, in CSS pixels.
        height: of the page, in CSS pixels.
        dark: whether the user prefers dark colours.
    """

    def __init__(self, folder: Path, width: int = 960, height: int = 640, *, dark: bool = False) -> None:
        self._folder = folder
        self._size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self._dark = dark
        self._asked = 0
        self._rest = b""
        self._session: str | None = None
        self.errors: list[str] = []
        """Errors that the page logged to its console, and uncaught exceptions."""

    def __enter__(self) -> Self:
        """Start with an empty page."""
        assert PROGRAM is not None, "install Debian's package chromium"
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        # Chromium reads from file descriptor 3 and writes to 4.
        shell = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'
        command = [PROGRAM, *FLAGS, f"--user-data-dir={self._folder}", "about:blank"]
        self._process = subprocess.Popen(
            ["/bin/bash", "-c", shell, "bash", *command],
            pass_fds=(theirs_in, theirs_out),
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._ask(f"{domain}.enable")
        self._ask("Emulation.setDeviceMetricsOverride", **self._size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if self._dark else "light"}
        self._ask("Emulation.setEmulatedMedia", features=[scheme])
        return self

    def __exit__(self, *_: object) -> None:
        """End the browser."""
        os.close(self._out)  # it exits when its input is closed
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, 9)
            self._process.wait()
        os.close(self._in)

    def open(self, url: str) -> None:
        """Go to a page and wait until its scripts have run."""
        self._ask("Page.navigate", url=url)
        self.until("location.href !== 'about:blank' && document.readyState === 'complete'")

    def value(self, expression: str) -> Any:  # whatever the script returns
        """Evaluate an expression in the page."""
        answer = self._ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def until(self, expression: str) -> None:
        """Wait until an expression in the page is true."""
        until(lambda: self.value(expression), expression)

    def screenshot(self, file: Path) -> None:
        """Write the visible page as a PNG."""
        file.write_bytes(base64.b64decode(self._ask("Page.captureScreenshot", format="png")["data"]))

    def _ask(self, method: str, **params: object) -> Message:
        self._asked += 1
        question: Message = {"id": self._asked, "method": method, "params": params}
        if self._session is not None:
            question["sessionId"] = self._session
        os.write(self._out, json.dumps(question).encode() + b"\0")
        while True:
            message = self._read()
            if message.get("id") == self._asked:
                assert "error" not in message, (method, message["error"])
                result: Message = message["result"]
                return result
            self._note(message)

    def _read(self) -> Message:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._in], [], [], PATIENCE)
            assert ready, f"the browser has not answered for {PATIENCE} s"
            read = os.read(self._in, 1 << 20)
            assert read, "the browser has ended"
            self._rest += read
        text, _, self._rest = self._rest.partition(b"\0")
        message: Message = json.loads(text)
        return message

    def _note(self, message: Message) -> None:
        params = message.get("params", {})
        match message.get("method"):
            case "Runtime.exceptionThrown":
                self.errors.append(str(params["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning", "assert"):
                self.errors.append(str(params["args"]))
            case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                self.errors.append(params["entry"]["text"])
