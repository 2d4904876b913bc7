"""Files and functions stay small enough to be read in one go."""

import ast
import statistics
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
MAX_FILE = 600
MAX_TEST_FILE = 800
MAX_FUNCTION = 60
# Straight-line numpy kernels that would only get harder to follow in pieces.
LONG_KERNELS: frozenset[str] = frozenset()


def sources():
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    paths = [ROOT / line for line in listed.splitlines() if "/_proto/" not in line]
    assert len(paths) > 40
    return [path for path in paths if path.exists()]


def functions(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            has_docstring = ast.get_docstring(node) is not None
            body = node.body[1:] if has_docstring else node.body
            yield f"{path.relative_to(ROOT)}:{node.name}", (node.end_lineno - body[0].lineno + 1) if body else 0


def test_files_are_short():
    too_long = {
        str(path.relative_to(ROOT)): lines
        for path in sources()
        if (lines := len(path.read_text().splitlines()))
        > (MAX_TEST_FILE if "tests" in path.relative_to(ROOT).parts else MAX_FILE)
    }
    assert too_long == {}


def test_functions_are_short():
    lengths = {
        name: length
        for path in sources()
        if path.relative_to(ROOT).parts[0] in {"lance_core", "lance_dagster", "example_project"}
        for name, length in functions(path)
    }
    assert {name: n for name, n in lengths.items() if n > MAX_FUNCTION and name not in LONG_KERNELS} == {}
    assert statistics.median(lengths.values()) <= 10
    assert statistics.quantiles(lengths.values(), n=10)[-1] <= 30
