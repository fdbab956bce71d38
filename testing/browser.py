"""A headless Chromium, driven through pipes by its DevTools protocol."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from .requirements import require_program

_TIMEOUT_SECONDS: Final = 180.0
# The browser reads commands from file descriptor 3 and writes to 4; each message ends with a null byte.
# The two pipes may have the numbers 4 and 3, so they are moved away first.
_LAUNCH: Final = """
import os, sys
pipes = [os.dup2(int(fd), 100 + to) for to, fd in enumerate(sys.argv[1:3])]
for to, fd in enumerate(pipes):
    os.dup2(fd, 3 + to)
    os.close(fd)
os.execv(sys.argv[3], sys.argv[3:])
"""
_OPTIONS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


class BrowserError(Exception):
    """A command failed, or a script raised an exception."""


class Browser:
    """One browser with one page. Requests and console messages of the page are recorded."""

    def __init__(self) -> None:
        program = require_program("chromium")
        self._profile = tempfile.mkdtemp(prefix="moldau-chromium-")
        commands_read, self._commands = os.pipe()
        self._events, events_write = os.pipe()
        launcher = [sys.executable, "-c", _LAUNCH, str(commands_read), str(events_write)]
        self._process = subprocess.Popen(
            [*launcher, program, *_OPTIONS, f"--user-data-dir={self._profile}", "about:blank"],
            pass_fds=(commands_read, events_write),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(commands_read)
        os.close(events_write)
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self._loaded = False
        self.requests: list[str] = []
        """The addresses of all requests of the page."""
        self.console: list[str] = []
        """Messages, errors, violations of the policy, and uncaught exceptions."""
        targets = self.command("Target.getTargets")["targetInfos"]
        page = next(each["targetId"] for each in targets if each["type"] == "page")
        self._session = self.command("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.command(f"{domain}.enable")

    def open(self, page: Path | str) -> None:
        """Load a file or an address, and return when it is loaded."""
        with self.loading():
            self.command("Page.navigate", url=page if isinstance(page, str) else page.as_uri())

    @contextmanager
    def loading(self) -> Iterator[None]:
        """A block that leads to another page; returns when that is loaded."""
        self._loaded = False
        yield
        while not self._loaded:
            self._handle(self._receive())

    def follow(self, selector: str) -> None:
        """Click an element that leads to another page, and return when that is loaded."""
        with self.loading():
            self.click(selector)

    def wait_for(self, script: str) -> Any:
        """Return when the expression is true, which is evaluated for each frame of the page; its value."""
        return self.evaluate(
            "new Promise((resolve, reject) => {"
            f"  const end = Date.now() + {_TIMEOUT_SECONDS * 1000};"
            "  const look = () => {"
            f"    const found = {script};"
            "    if (found) resolve(found);"
            f"    else if (Date.now() > end) reject(new Error({json.dumps('not true in time: ' + script)}));"
            "    else setTimeout(look, 20);"
            "  };"
            "  look();"
            "})"
        )

    def display(self, width: int, height: int, scheme: str) -> None:
        """The size of the window, and `light` or `dark`."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.command("Emulation.setDeviceMetricsOverride", **size)
        self.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def evaluate(self, script: str) -> Any:
        """The value of an expression."""
        found = self.command("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise BrowserError(f"{script}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def press(self, key: str) -> None:
        """Press and release a key: a character, or a name such as Enter."""
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        code = {"Enter": 13, "Escape": 27, "Tab": 9}.get(key, ord(key) if len(key) == 1 else 0)
        for kind in ("keyDown", "keyUp"):
            typed = {"text": text} if text and kind == "keyDown" else {}
            self.command("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **typed)

    def click(self, selector: str) -> None:
        """Click the middle of an element with the mouse."""
        box = self.evaluate(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            " e.scrollIntoView({ block: 'center' });"
            " const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.command("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)

    def screenshot(self, path: Path | None = None, *, whole: bool = False) -> bytes:
        """A PNG of the window, or of the whole page."""
        data = base64.b64decode(self.command("Page.captureScreenshot", captureBeyondViewport=whole)["data"])
        if path is not None:
            path.write_bytes(data)
        return data

    # Messages

    def command(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            found = self._receive()
            if found.get("id") == self._number:
                if "error" in found:
                    raise BrowserError(f"{method}: {found['error']['message']}")
                return dict(found["result"])
            self._handle(found)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._events], [], [], _TIMEOUT_SECONDS)
            data = os.read(self._events, 1 << 20) if ready else b""
            if not data:
                raise BrowserError("the browser exited, or did not respond in time")
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        return dict(json.loads(message))

    def _handle(self, event: dict[str, Any]) -> None:
        method, parameters = event.get("method"), event.get("params", {})
        if method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif method == "Runtime.consoleAPICalled":
            self.console.append(str(parameters["args"]))
        elif method == "Runtime.exceptionThrown":
            self.console.append(str(parameters["exceptionDetails"]))
        elif method == "Log.entryAdded":
            self.console.append(parameters["entry"]["text"])

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._commands)
        os.close(self._events)
        shutil.rmtree(self._profile, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
