"""Take pictures of pages of a running Dagster UI with a Chromium without a window.

``python docs/pictures.py http://127.0.0.1:3000 FOLDER NAME=PATH ...`` writes ``FOLDER/NAME.png`` for each page, such as
``maintenance=/asset-groups``. ``PATH>TEXT`` clicks on the innermost element with that text before the picture is taken,
as often as there are texts. Pages have 1500 x 1000 pixels; ``NAME@1800x1200=PATH`` asks for another size.
"""

from __future__ import annotations

import argparse
import base64
import json
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from websockets.sync.client import ClientConnection, connect

WAIT_S = 12.0
"""Seconds that a page has to load and to settle."""
SIZE = (1500, 1000)
_CLICK = """
(() => {
  const text = %s;
  const all = [...document.querySelectorAll('*')].filter(e => e.innerText && e.innerText.trim() === text);
  const last = all[all.length - 1];
  if (!last) return 'no element with the text ' + text;
  for (const type of ['mousedown', 'mouseup', 'click'])
    last.dispatchEvent(new MouseEvent(type, {bubbles: true, cancelable: true, view: window}));
  return '';
})()
"""


class Page:
    """A page of the browser, told what to do by its debugging protocol."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket, self._number = socket, 0

    def ask(self, method: str, **params: object) -> dict[str, Any]:
        """Send a command and return its result."""
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": params}))
        while True:
            answer = json.loads(self._socket.recv(timeout=120))
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]

    def picture(self, url: str, clicks: list[str], size: tuple[int, int]) -> bytes:
        """Return a page as PNG, after clicks."""
        self.ask("Emulation.setDeviceMetricsOverride", width=size[0], height=size[1], deviceScaleFactor=1, mobile=False)
        self.ask("Page.navigate", url=url)
        time.sleep(WAIT_S)
        for text in clicks:
            value = self.ask("Runtime.evaluate", expression=_CLICK % json.dumps(text), returnByValue=True)
            if problem := value["result"].get("value"):
                raise RuntimeError(f"{url}: {problem}")
            time.sleep(WAIT_S / 2)
        return base64.b64decode(self.ask("Page.captureScreenshot", format="png")["data"])


def open_page(browser: str, folder: str) -> tuple[subprocess.Popen[bytes], Page]:
    """Start a browser and open a page."""
    command = [browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    command += ["--remote-debugging-port=0", f"--user-data-dir={folder}", "about:blank"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)  # noqa: S603 - the browser that was found
    port_file = Path(folder, "DevToolsActivePort")
    while not port_file.exists():
        time.sleep(0.1)
    time.sleep(0.5)
    port = port_file.read_text().split()[0]
    with urlopen(f"http://127.0.0.1:{port}/json/list") as response:
        target = next(target for target in json.load(response) if target["type"] == "page")
    return process, Page(connect(target["webSocketDebuggerUrl"], max_size=None, legacy=True))


def main() -> None:
    """Take the pictures that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("server")
    parser.add_argument("folder", type=Path)
    parser.add_argument("pages", nargs="+", metavar="NAME=PATH")
    given = parser.parse_args()
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        raise SystemExit("There is no chromium and no google-chrome.")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        process, page = open_page(browser, folder)
        try:
            for text in given.pages:
                name, _, path = text.partition("=")
                name, _, size = name.partition("@")
                width, height = (int(part) for part in size.split("x")) if size else SIZE
                path, *clicks = path.split(">")
                picture = page.picture(f"{given.server}{path}", clicks, (width, height))
                (given.folder / f"{name}.png").write_bytes(picture)
        finally:
            process.terminate()
            process.wait()


if __name__ == "__main__":
    main()
