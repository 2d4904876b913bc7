"""Linter, formatter, type checker and layer contracts are clean."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ["lance_core", "lance_dagster", "example_project", "tests", "benchmarks"]
COMMANDS = {
    "ruff": [sys.executable, "-m", "ruff", "check", *SOURCES],
    "format": [sys.executable, "-m", "ruff", "format", "--check", *SOURCES],
    "pyright": [sys.executable, "-m", "pyright"],
    "layers": [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_clean(name):
    done = subprocess.run(COMMANDS[name], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
