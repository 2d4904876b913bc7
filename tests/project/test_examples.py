"""Examples in docstrings run, each with a small dataset of its own in an empty folder."""

import doctest
import importlib
import re
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest

import lance_core
import lance_dagster

ROOT = Path(__file__).parents[2]
CITIES = {"id": [1, 2, 3, 4], "name": ["Oslo", "Lima", "Pune", "Cusco"], "height": [23, 154, 560, 3399]}
LEAST_EXAMPLES = 40


def examples():
    """All docstrings with examples; modules that define none are not imported."""
    finder = doctest.DocTestFinder(exclude_empty=True)
    for package in ("lance_core", "lance_dagster"):
        for path in sorted((ROOT / package).rglob("*.py")):
            if ">>> " in path.read_text():
                name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
                yield from (test for test in finder.find(importlib.import_module(name), name) if test.examples)


EXAMPLES = {test.name: test for test in examples()}


def parameters():
    for name, test in EXAMPLES.items():
        marks = [pytest.mark.spark] if re.search(r"\bspark\b", test.docstring.split("Examples:")[1]) else []
        yield pytest.param(test, id=name, marks=marks)


@pytest.mark.parametrize("test", list(parameters()))
def test_example_runs(test, tmp_path, monkeypatch, request):
    monkeypatch.chdir(tmp_path)
    table = lance_core.write_dataset(pa.table(CITIES), "cities.lance", enable_stable_row_ids=True)
    test.globs |= {"lance_core": lance_core, "lance_dagster": lance_dagster, "dg": dg, "pa": pa, "table": table}
    if "dagster" in test.name:
        test.globs["instance"] = dg.DagsterInstance.ephemeral()
    if "spark" in test.name:
        test.globs["spark"] = request.getfixturevalue("jvm")
    report: list[str] = []
    results = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=report.append, clear_globs=False)
    assert results.failed == 0, "".join(report)


def test_the_methods_used_most_have_examples():
    assert len(EXAMPLES) >= LEAST_EXAMPLES
