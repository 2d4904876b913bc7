"""Every Python block of the README runs, in order, in one namespace and an empty folder."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.spark
@pytest.mark.filterwarnings("default")
def test_readme_blocks_run(tmp_path, monkeypatch):
    blocks = list(BLOCK.finditer(README))
    assert len(blocks) >= 3
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "readme"}
    for block in blocks:
        line = README[: block.start(1)].count("\n")
        # Padding keeps the README's own line numbers in tracebacks.
        exec(compile("\n" * line + block.group(1), str(ROOT / "README.md"), "exec"), namespace)  # noqa: S102
    spark = namespace.get("spark")
    if spark is not None:
        spark.stop()


@pytest.mark.parametrize("link", re.findall(r"\]\((?!https?://|#)([^)]+)\)", README))
def test_readme_links_exist(link):
    assert (ROOT / link).exists()
