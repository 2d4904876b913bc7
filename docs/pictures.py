"""Take the pictures of Dagster's UI that the pages show, with a Chromium without a window: ``make pictures``.

Two code locations are run and shown, each with a history of its own in a temporary folder: the example project, and
``docs/pictures_project.py`` for what that is too small for. `PICTURES` lists what is taken; look at each picture before
you commit it. ``python docs/pictures.py NAME ...`` takes only these.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

from websockets.sync.client import ClientConnection, connect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

PROJECT = Path(__file__).parents[1]
EXAMPLE = PROJECT / "example_project"
IMAGES = EXAMPLE / "images"
SHOWN_FOLDER = "/home/demo"
"""Shown in place of the temporary folder."""
WIDTH, SCALE = 1360, 1.5
"""Pixels of a page, and pixels of the picture for each: sharp where a README shows it 900 pixels wide."""
SETTLED_S, MAX_WAIT_S = 3.0, 90.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A picture of a page.

    Args:
        name: Of the file, without its ending.
        location: Code location that has the page: ``example`` or ``hundred``.
        path: Of the page; ``{run:JOB}`` is the newest run of a job.
        clicks: Texts of the elements that are clicked on, one after the other.
        top: Text that is scrolled to the top of what it scrolls in.
        height: Of the page in pixels.
    """

    name: str
    location: str
    path: str
    clicks: tuple[str, ...] = ()
    top: str | None = None
    height: int = 820


PICTURES = [
    Picture(name="asset", location="example", path="/assets/enriched_flights"),
    Picture(
        name="plots", location="example", path="/assets/enriched_flights", clicks=("Plots", "Events"), top="Metadata"
    ),
    Picture(
        name="column_lineage",
        location="example",
        path="/assets/daily_summary",
        top="lance/column_lineage",
        height=480,
    ),
    Picture(name="checks", location="example", path="/assets/airports?view=checks", clicks=("unique",)),
    Picture(
        name="maintenance",
        location="example",
        path="/locations/example_project/asset-groups/maintenance",
    ),
    Picture(name="progress", location="hundred", path="/runs/{run:load_clicks}", top="STEP_START", height=700),
    Picture(name="hundred_tables", location="hundred", path="/asset-groups", height=1280),
    Picture(
        name="health",
        location="hundred",
        path="/assets/lance_maintenance/table_health",
        clicks=("[Show Markdown]",),
        height=880,
    ),
    Picture(
        name="change_partitions",
        location="hundred",
        path="/runs/{run:orders__change_partitions}",
        clicks=("[Show Markdown]",),
    ),
]

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
_SCROLL = """
(() => {
  const text = %s;
  const all = [...document.querySelectorAll('*')].filter(e => e.innerText && e.innerText.trim() === text);
  const last = all[all.length - 1];
  if (!last) return 'no element with the text ' + text;
  let box = last.parentElement;
  while (box && !(box.scrollHeight > box.clientHeight && /auto|scroll/.test(getComputedStyle(box).overflowY)))
    box = box.parentElement;
  if (box) box.scrollTop += last.getBoundingClientRect().top - box.getBoundingClientRect().top;
  return '';
})()
"""
_RENAME = """
(() => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode;
    if (node.nodeValue.includes(%(folder)s)) node.nodeValue = node.nodeValue.replaceAll(%(folder)s, %(shown)s);
  }
  return '';
})()
"""


class Page:
    """A page of the browser, told what to do by its debugging protocol."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection, self._number = connection, 0

    def ask(self, method: str, **params: object) -> dict[str, Any]:
        """Send a command and return its result."""
        self._number += 1
        self._connection.send(json.dumps({"id": self._number, "method": method, "params": params}))
        while True:
            answer = json.loads(self._connection.recv(timeout=120))
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]

    def run(self, script: str) -> str:
        """Return the text that JavaScript gives."""
        return self.ask("Runtime.evaluate", expression=script, returnByValue=True)["result"].get("value", "")

    def act(self, script: str) -> None:
        """Run JavaScript that returns what is wrong, or an empty text."""
        deadline = time.monotonic() + MAX_WAIT_S
        while problem := self.run(script):
            if time.monotonic() > deadline:
                raise RuntimeError(problem)
            time.sleep(1)

    def settle(self) -> None:
        """Wait until the texts of the page stay as they are."""
        before, since, deadline = "", time.monotonic(), time.monotonic() + MAX_WAIT_S
        while time.monotonic() < min(since + SETTLED_S, deadline) or "fetching" in before:
            time.sleep(0.5)
            text = self.run("document.body.innerText")
            if text != before:
                before, since = text, time.monotonic()
            if time.monotonic() > deadline:
                return

    def picture(self, url: str, picture: Picture, folder: str) -> bytes:
        """Return a page as PNG."""
        size = {"width": WIDTH, "height": picture.height}
        self.ask("Emulation.setDeviceMetricsOverride", **size, deviceScaleFactor=SCALE, mobile=False)
        self.ask("Page.navigate", url=url)
        self.settle()
        for text in picture.clicks:
            self.act(_CLICK % json.dumps(text))
            self.settle()
        if picture.top is not None:
            self.act(_SCROLL % json.dumps(picture.top))
            self.settle()
        self.act(_RENAME % {"folder": json.dumps(folder), "shown": json.dumps(SHOWN_FOLDER)})
        return base64.b64decode(self.ask("Page.captureScreenshot", format="png")["data"])


@contextmanager
def opened_page() -> Iterator[Page]:
    """Start a browser and open a page."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        raise SystemExit("There is no chromium and no google-chrome.")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        command = [browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-sync"]
        command += ["--no-first-run", "--disable-background-networking", "--disable-component-update"]
        command += ["--remote-debugging-port=0", f"--user-data-dir={folder}", "about:blank"]
        with started(command, stderr=subprocess.DEVNULL):
            port_file = Path(folder, "DevToolsActivePort")
            wait_for(port_file.exists)
            time.sleep(0.5)
            port = port_file.read_text().split()[0]
            targets = json.loads(wait_for(partial(fetched, f"http://127.0.0.1:{port}/json/list")))
            target = next(target for target in targets if target["type"] == "page")
            with connect(target["webSocketDebuggerUrl"], max_size=None, legacy=True) as connection:
                yield Page(connection)


@contextmanager
def started(command: Sequence[str], **options: Any) -> Iterator[None]:
    """Run a program, and end it with all that it started."""
    process = subprocess.Popen(command, start_new_session=True, **options)  # noqa: S603 - commands of this script
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait()


def wait_for(ready: Callable[[], Any]) -> Any:
    """Return the first answer that is true."""
    deadline = time.monotonic() + MAX_WAIT_S
    while not (answer := ready()):
        if time.monotonic() > deadline:
            raise RuntimeError("It did not start in time.")
        time.sleep(0.5)
    return answer


def fetched(url: str, body: bytes | None = None) -> bytes | None:
    """Return the answer of a server; None if it does not answer yet."""
    try:
        with urlopen(Request(url, data=body, headers={"Content-Type": "application/json"})) as response:  # noqa: S310
            return response.read()
    except OSError:
        return None


@contextmanager
def served(location: str, folder: str) -> Iterator[str]:
    """Make the history of a code location and show it; gives the address of the server."""
    home = Path(folder, location)
    home.mkdir()
    shutil.copy(EXAMPLE / "dagster.yaml", home)
    path = os.pathsep.join([str(PROJECT), str(EXAMPLE / "src"), os.environ.get("PYTHONPATH", "")])
    lakes = {"EXAMPLE_LAKE": str(home / "lake"), "PICTURES_LAKE": str(home / "lake")}
    environment = {**os.environ, "DAGSTER_HOME": str(home), "PYTHONPATH": path, **lakes}
    script = str(PROJECT / "docs" / "pictures_project.py")
    program = ["-m", "example_project.demo"] if location == "example" else [script]
    print(f"Making the history of {location} ...")  # noqa: T201
    with Path(folder, f"{location}.log").open("w") as log:
        output: Any = {"stdout": log, "stderr": log, "env": environment}
        # The history of dagster.yaml is below the current folder.
        subprocess.run([sys.executable, *program], cwd=home, check=True, **output)  # noqa: S603 - likewise
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        target = {"module_name": "example_project.definitions"} if location == "example" else {"relative_path": script}
        kind = "python_module" if location == "example" else "python_file"
        target["location_name"] = "example_project" if location == "example" else location
        (home / "workspace.yaml").write_text(json.dumps({"load_from": [{kind: target}]}))
        server = [sys.executable, "-m", "dagster_webserver", "-h", "127.0.0.1", "-p", port, "-w", "workspace.yaml"]
        with started(server, cwd=home, **output):
            address = f"http://127.0.0.1:{port}"
            wait_for(partial(fetched, f"{address}/server_info"))
            yield address


def newest_run(server: str, job: str) -> str:
    """Return the id of a job's newest run."""
    query = "query($job: String!) {runsOrError(filter: {pipelineName: $job}, limit: 1) {... on Runs {results {runId}}}}"
    body = json.dumps({"query": query, "variables": {"job": job}}).encode()
    answer = json.loads(fetched(f"{server}/graphql", body) or b"{}")
    return answer["data"]["runsOrError"]["results"][0]["runId"]


def main() -> None:
    """Take the pictures that the command line names, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[*(one.name for one in PICTURES), []])
    names = parser.parse_args().names or [one.name for one in PICTURES]
    chosen = [one for one in PICTURES if one.name in names]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, opened_page() as page:
        for location in dict.fromkeys(one.location for one in chosen):
            with served(location, folder) as server:
                page.ask("Page.navigate", url=server)
                page.act(_CLICK % json.dumps("Hide navigation"))
                for one in (one for one in chosen if one.location == location):
                    before, _, job = one.path.rstrip("}").partition("{run:")
                    path = before + newest_run(server, job) if job else one.path
                    image = page.picture(f"{server}{path}", one, str(Path(folder, location)))
                    (IMAGES / f"{one.name}.png").write_bytes(image)
                    print(f"{one.name}.png: {len(image):,} bytes")  # noqa: T201


if __name__ == "__main__":
    main()
