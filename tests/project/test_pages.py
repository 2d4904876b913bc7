"""The Python blocks of a page run, in order, as one program in an empty folder, unless they say ``notest``."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TESTED_ELSEWHERE = {"object-stores", "start"}
"""Need servers, see test_object_stores_page, and Spark, see test_readme."""
PAGES = sorted(
    str(page.relative_to(DOCS).with_suffix(""))
    for pattern in ("*.md", "how-to/*.md")
    for page in DOCS.glob(pattern)
    if BLOCK.search(page.read_text())
)


def test_each_task_is_a_whole_program():
    assert [page.name for page in DOCS.glob("how-to/*.md") if len(BLOCK.findall(page.read_text())) != 1] == []


SERVER = """
import json, os, sys
import dagster, lance_dagster
import pyarrow as pa

@dagster.asset
def first():
    return pa.table({"text": ["a"]})

dagster.materialize([first], resources={"io_manager": lance_dagster.LanceIOManager(root="lake")})
for line in sys.stdin:
    folder, script = json.loads(line)
    child = os.fork()
    if child == 0:
        os.chdir(folder)
        output = os.open("../output", os.O_CREAT | os.O_WRONLY)
        for stream in (1, 2):
            os.dup2(output, stream)
        exec(compile(script, "page", "exec"), {"__name__": "__main__"})
        sys.exit()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""Runs programs in forks of a process that has imported what they need: Dagster's first run imports for seconds."""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    command = [sys.executable, "-c", SERVER]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, text=True, cwd=tmp_path_factory.mktemp("server"), **pipes) as process:
        yield process


@pytest.mark.parametrize("page", [page for page in PAGES if page not in TESTED_ELSEWHERE])
def test_blocks_run(request, page, tmp_path):
    script = "\n".join(BLOCK.findall((DOCS / f"{page}.md").read_text()))
    folder = tmp_path / "empty"
    folder.mkdir()
    if "lance_dagster" not in script:
        done = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return
    server = request.getfixturevalue("server")
    server.stdin.write(json.dumps([str(folder), script]) + "\n")
    server.stdin.flush()
    assert server.stdout.readline() == "0\n", (tmp_path / "output").read_text()
