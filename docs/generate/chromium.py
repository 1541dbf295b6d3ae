"""A headless Chromium, spoken to through a pipe: enough of its protocol to look at one page."""

import json
import os
import shutil
import subprocess
import time
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

PROGRAM: Final = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_WAIT: Final = 15.0


class Page:
    """One open page; what it logs, throws and asks for is kept."""

    def __init__(self, ask: int, answers: int) -> None:
        self._ask, self._answers = ask, answers
        self._rest, self._count, self._session = b"", 0, ""
        self.events: list[dict[str, Any]] = []

    def open(self, url: str) -> None:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Page.navigate", url=url)
        self.wait_for("document.readyState === 'complete'")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._count += 1
        message = {"id": self._count, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._ask, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._count:
                assert "error" not in answer, answer
                found: dict[str, Any] = answer["result"]
                return found

    def value(self, expression: str) -> Any:
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def wait_for(self, expression: str) -> None:
        until = time.monotonic() + _WAIT
        while not self.value(expression):
            assert time.monotonic() < until, f"not within {_WAIT} s: {expression}"
            time.sleep(0.1)

    def media(self, kind: str, scheme: str) -> None:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", media=kind, features=features)

    def size(self, width: int, height: int) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def screenshot(self, file: Path, selector: str = "", height: int = 0) -> None:
        """Take a picture of one element, or of the page from its top."""
        box = json.loads(
            self.value(
                "JSON.stringify((e => { const b = e.getBoundingClientRect();"
                " return {x: b.x + scrollX, y: b.y + scrollY, width: b.width, height: b.height}; })"
                f"(document.querySelector({json.dumps(selector or 'html')})))"
            )
        )
        if not selector:
            box = {"x": 0, "y": 0, "width": box["width"], "height": height or box["height"]}
        clip = {**box, "scale": 1}
        shot = self.call("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b64decode(shot["data"]))

    def complaints(self) -> list[str]:
        """Exceptions, and what was logged as an error or a warning."""
        found = []
        for event in self.events:
            params = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                found.append(str(params["exceptionDetails"]))
            elif event["method"] == "Runtime.consoleAPICalled" and params["type"] in {"error", "warning", "assert"}:
                found.append(str(params["args"]))
            elif event["method"] == "Log.entryAdded" and params["entry"]["level"] in {"error", "warning"}:
                found.append(str(params["entry"]))
        return found

    def requests(self) -> list[str]:
        return [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            more = os.read(self._answers, 1 << 20)
            assert more, "Chromium has ended"
            self._rest += more
        text, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        if "method" in message:
            self.events.append(message)
        return message


@contextmanager
def open_page(file: Path, profile: Path) -> Iterator[Page]:
    """Open a file as a double click would."""
    assert PROGRAM
    to_chromium, ask = os.pipe()
    answers, from_chromium = os.pipe()

    def hand_over() -> None:
        # Its protocol is spoken on these two; both are moved out of the way first, for they may be 3 or 4 themselves.
        read, write = os.dup(to_chromium), os.dup(from_chromium)
        os.dup2(read, 3)
        os.dup2(write, 4)

    process = subprocess.Popen(
        [
            PROGRAM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
            "--remote-debugging-pipe", "--no-first-run", "--disable-background-networking",
            f"--user-data-dir={profile}", "about:blank",
        ],
        preexec_fn=hand_over,  # noqa: PLW1509 (no threads here)
        close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(to_chromium)
    os.close(from_chromium)
    try:
        page = Page(ask, answers)
        page.open(file.resolve().as_uri())
        yield page
    finally:
        process.terminate()
        process.wait(timeout=30)
        os.close(ask)
        os.close(answers)
