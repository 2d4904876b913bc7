"""The README is short, renders on a package index, and its Python blocks run; so do those of the first page."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run(page, folder, **options):
    text = page.read_text()
    script = ""
    for block in BLOCK.finditer(text):
        # Padding keeps the page's own line numbers in tracebacks.
        script += "\n" * (text[: block.start(1)].count("\n") - script.count("\n")) + block.group(1)
    assert script
    path = folder / "page.py"
    path.write_text(script)
    done = subprocess.run([sys.executable, path], cwd=folder, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stderr


def test_readme_blocks_run(tmp_path):
    run(ROOT / "README.md", tmp_path)


@pytest.mark.spark
def test_blocks_of_the_first_page_run(tmp_path, preloading):
    run(ROOT / "docs" / "start.md", tmp_path, env=preloading)


def test_readme_is_two_screens_without_the_figures():
    text = README.partition("<!-- figures")[0]
    assert len(text.splitlines()) <= 100
    assert len(text.split()) <= 700


def test_readme_images_are_absolute():
    assert [link for link in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", README) if not link.startswith("https://")] == []


@pytest.mark.parametrize("link", re.findall(r"\]\((?!https?://|#)([^)]+)\)", README))
def test_readme_links_exist(link):
    assert (ROOT / link).exists()
