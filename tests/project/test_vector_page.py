"""Every Python block of the page about vector search runs, in order, as one program in an empty folder."""

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "vector-search.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_blocks_run(tmp_path):
    blocks = BLOCK.findall(PAGE.read_text())
    assert len(blocks) >= 4
    command = [sys.executable, "-c", "\n".join(blocks)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
