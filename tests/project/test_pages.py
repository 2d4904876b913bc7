"""The Python blocks of a page run, in order, as one program in an empty folder, unless they say ``notest``."""

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


@pytest.mark.parametrize("page", [page for page in PAGES if page not in TESTED_ELSEWHERE])
def test_blocks_run(page, tmp_path):
    script = "\n".join(BLOCK.findall((DOCS / f"{page}.md").read_text()))
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
