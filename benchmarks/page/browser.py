"""A Chromium without a window, spoken to over its debugging protocol."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
from websockets.sync.client import connect

START_S = 60.0
QUIET = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-default-apps", "--mute-audio"),
    "--hide-scrollbars",
)


class Tab:
    """One tab. `complaints` are what its console said since the last page."""

    def __init__(self, socket: Any, port: str) -> None:
        self._socket, self._ids, self._port = socket, itertools.count(1), port
        self.complaints: list[str] = []
        self._loaded = 0
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol."""
        number = next(self._ids)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while (message := self._next()).get("id") != number:
            pass
        assert "error" not in message, message
        return message["result"]

    def open(self, url: str, settle_s: float = 0.3) -> None:
        """Load a page and let it settle."""
        self.complaints, self._loaded = [], 0
        self.ask("Page.navigate", url=url)
        while not self._loaded:
            self._next()
        for left in (2, 1, 0):
            try:
                self.run(f"new Promise(done => setTimeout(done, {1000 * settle_s}))")
                return
            except AssertionError as error:  # a slow machine may report a page as loaded that is about to be replaced
                if "navigated" not in str(error) or not left:
                    raise

    def run(self, expression: str) -> Any:
        """The value of an expression, awaited."""
        found = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def look(self, width: int, scheme: str, height: int = 900) -> None:
        """Be as wide as this, light or dark."""
        self.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    @contextlib.contextmanager
    def another(self) -> Iterator[Tab]:
        """Open a further tab of the same browser; it is closed at the end."""
        with _opened(self._port) as tab:
            yield tab

    def shoot(self, path: Path, *, most: int = 1400) -> int:
        """Save a picture of the whole page, `most` pixels high; its size in bytes."""
        size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], most), "scale": 1}
        found = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.write_bytes(base64.b64decode(found["data"]))

    def _next(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self._socket.recv(START_S))
        told = message.get("params", {})
        match message.get("method"):
            case "Log.entryAdded":
                self.complaints.append(f"{told['entry']['text']} {told['entry'].get('url', '')}")
            case "Runtime.consoleAPICalled":
                self.complaints.append(str(told["args"]))
            case "Runtime.exceptionThrown":
                self.complaints.append(str(told["exceptionDetails"]))
            case "Page.loadEventFired":
                self._loaded += 1
        return message


@contextlib.contextmanager
def chromium(directory: Path) -> Iterator[Tab]:
    """Start a browser with a profile of its own in `directory`."""
    profile, log_path = directory / "profile", directory / "chromium.log"
    arguments = ["chromium", *QUIET, f"--user-data-dir={profile}", "--remote-debugging-port=0", "about:blank"]
    with log_path.open("wb") as log:
        process = subprocess.Popen(arguments, stdout=log, stderr=log)
    try:
        deadline, told = time.monotonic() + START_S, profile / "DevToolsActivePort"
        while not (told.exists() and "\n" in told.read_text()):
            assert process.poll() is None, log_path.read_text()
            assert time.monotonic() < deadline, log_path.read_text()
            time.sleep(0.05)
        with _opened(told.read_text().split()[0]) as tab:
            yield tab
    finally:
        process.terminate()
        process.wait(20)


@contextlib.contextmanager
def _opened(port: str) -> Iterator[Tab]:
    about = httpx.put(f"http://127.0.0.1:{port}/json/new?about:blank", timeout=START_S).json()
    with connect(about["webSocketDebuggerUrl"], max_size=None) as socket:
        yield Tab(socket, port)
    httpx.get(f"http://127.0.0.1:{port}/json/close/{about['id']}", timeout=START_S)
