"""A headless Chromium, driven over pipes, which needs no package."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe")


def installed() -> str | None:
    """The path of the browser's program, if there is one."""
    return next((found for found in map(shutil.which, NAMES) if found), None)


class Browser:
    """One page of a browser."""

    def __init__(self, program: str, profile: Path) -> None:
        # Chromium reads commands from descriptor 3 and answers on 4, each message ending with a zero byte.
        read, self._write = os.pipe()
        self._read, write = os.pipe()
        command = f'exec "$0" "$@" 3<&{read} 4>&{write}'
        arguments = ["bash", "-c", command, program, *FLAGS, f"--user-data-dir={profile}"]
        self._process = subprocess.Popen(arguments, pass_fds=(read, write), stderr=subprocess.DEVNULL)
        os.close(read)
        os.close(write)
        self._number, self._received, self._session = 0, b"", ""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._write)
        os.close(self._read)

    def send(self, method: str, **parameters: Any) -> Any:
        """Send a command and return the answer; events that arrive meanwhile are dropped."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self._received:
                arrived = os.read(self._read, 1 << 16)
                assert arrived, "the browser has ended"
                self._received += arrived
            first, _, self._received = self._received.partition(b"\0")
            answer = json.loads(first)
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression on the page."""
        result = self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait_for(self, expression: str, seconds: float = 20) -> None:
        """Wait until an expression is true."""
        deadline = time.monotonic() + seconds
        while not self.evaluate(f"Boolean({expression})"):
            assert time.monotonic() < deadline, f"never true: {expression}"
            time.sleep(0.05)

    def open(self, url: str, width: int = 1280) -> None:
        """Load a page in a window with a given width."""
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self.send("Emulation.setDeviceMetricsOverride", **metrics)
        self.send("Page.navigate", url=url)
        self.wait_for(f"document.readyState === 'complete' && location.href.startsWith({url!r})")
