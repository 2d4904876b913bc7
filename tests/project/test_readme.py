"""Every Python block of the README runs, in order, as one program in an empty folder."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.spark
def test_readme_blocks_run(tmp_path, preloading):
    blocks = list(BLOCK.finditer(README))
    assert len(blocks) >= 3
    script = ""
    for block in blocks:
        # Padding keeps the README's own line numbers in tracebacks.
        script += "\n" * (README[: block.start(1)].count("\n") - script.count("\n")) + block.group(1)
    path = tmp_path / "readme.py"
    path.write_text(script)
    done = subprocess.run(
        [sys.executable, path], cwd=tmp_path, env=preloading, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("link", re.findall(r"\]\((?!https?://|#)([^)]+)\)", README))
def test_readme_links_exist(link):
    assert (ROOT / link).exists()
