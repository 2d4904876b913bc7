import importlib.util
import inspect
import pickle
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

import lance_core
from lance_core.common.late_module import LateMethods
from lance_core.methods import changing, committing, files

HEAVY = ["pyarrow.compute", "pyarrow.dataset", "sqlglot", "sqlite3", "pandas", "polars", "pyspark", "dagster"]
HEAVY += ["obstore", "boto3", "secrets", "difflib"]
RARE = ["optimize", "maintenance.compact", "merge_insert", "change.merging.merge", "file.read.v0_1"]
RARE += ["reports.verification", "values.operations"]
HEAVY += [f"lance_core.{one}" for one in RARE]


def test_what_few_calls_need_is_there():
    """A name that is nowhere would never be imported."""
    assert all(importlib.util.find_spec(f"lance_core.{one}") for one in RARE)


def test_importing_is_light():
    """Whoever opens and writes tables imports what all calls need; what few calls need is imported by them."""
    names = "lance_core.dataset, lance_core.write_dataset, lance_core.LanceScanner"
    code = f"import sys, lance_core; {names}; print(*[one for one in {HEAVY} if one in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.split() == []


def test_who_reads_imports_nothing_that_changes_tables(tmp_path):
    lance_core.write_dataset(pa.table({"number": [1, 2, 3]}), tmp_path / "t")
    code = """
import sys, lance_core
table = lance_core.dataset(sys.argv[1])
assert table.to_table(filter="number > 1").num_rows == table.take([0, 1]).num_rows == len(table.head(2))
print(*[name for name in sys.modules if name.startswith(("lance_core.change.", "lance_core.methods.writing"))])
"""
    command = [sys.executable, "-c", code, str(tmp_path / "t")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() == []


def test_late_methods_are_functions_of_the_class_once_they_are_asked_for():
    late = LateMethods("lance_core.methods.changing")

    class Table:
        delete = late.delete
        commit = classmethod(LateMethods("lance_core.methods.committing").commit)
        drop = staticmethod(LateMethods("lance_core.methods.files").drop)

    assert not inspect.isfunction(vars(Table)["delete"])
    assert Table.delete is Table.delete is vars(Table)["delete"] is changing.delete
    assert Table().delete.__func__ is changing.delete
    assert list(inspect.signature(Table.commit).parameters) == list(inspect.signature(committing.commit).parameters)[1:]
    assert inspect.signature(Table.drop) == inspect.signature(files.drop)


def test_the_package_alone_imports_neither_numpy_nor_arrow():
    """A process that loads definitions of Dagster imports lance_core for its errors and names."""
    names = "('numpy', 'pyarrow', 'google.protobuf', 'lance_core.dataset')"
    code = f"import sys, lance_core, lance_core.errors; print(*[one for one in {names} if one in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.split() == []


def test_the_package_is_sent_by_name():
    """A function that uses it goes to another process, as those of Spark do."""
    assert pickle.loads(pickle.dumps(lance_core)) is lance_core  # noqa: S301 - our own


@pytest.mark.parametrize("first", ["lance_core.dataset", "lance_core.scanner", "lance_core"])
def test_a_module_has_the_name_of_a_function(first):
    code = f"import lance_core, {first}; from lance_core import dataset; from lance_core.dataset import LanceDataset\n"
    code += "assert lance_core.dataset is dataset is not LanceDataset; assert callable(dataset)\n"
    code += "assert LanceDataset is lance_core.LanceDataset\n"
    code += "assert lance_core.scanner.LanceScanner is lance_core.LanceScanner"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_public_name_is_there():
    assert set(lance_core.__all__) <= set(dir(lance_core))
    for name in lance_core.__all__:
        assert getattr(lance_core, name) is not None
    assert lance_core.CleanupStats(old_versions=1).old_versions == 1
    assert lance_core.__version__[0].isdigit()
    with pytest.raises(AttributeError, match="no attribute 'Sessions'"):
        _ = lance_core.Sessions


FIRST = """
import sys
import lance_core
uri, work = sys.argv[1:]
table = lance_core.dataset(uri)
before = set(sys.modules)
eval(work)
print(*set(sys.modules) - before)
"""


def _imported_by(work, uri):
    command = [sys.executable, "-c", FIRST, uri, work]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


FIRST_WORKS = {
    "table.take([0, 2])": 54,
    "table.to_table()": 54,
    "list(table.to_batches())": 55,
}
"""Modules that the first call of a process may import: each takes a quarter of a millisecond."""


@pytest.mark.parametrize("work", FIRST_WORKS)
def test_the_first_read_imports_few_modules(tmp_path, work):
    uri = lance_core.write_dataset(pa.table({"a": [1, 2, 3], "b": ["x", "y", None]}), tmp_path / "t").uri
    imported = _imported_by(work, uri)
    assert "lance_core.file.read.reader" in imported
    writing = ("lance_core.file.write", "lance_core.change", "lance_core.encoding.choose")
    assert not {name for name in imported if name.startswith(writing)}
    assert not imported & {
        "sqlglot",
        "pandas",
        "pyarrow.compute",
        "pyarrow._compute",
        "lance_core.file.read.v0_1",
        "importlib.metadata",
    }
    assert len(imported) <= FIRST_WORKS[work], sorted(imported)


def test_importing_makes_few_modules():
    """Those of pyarrow, numpy and Python are not ours to choose."""
    made = "sum(name.startswith(('lance_core', 'google')) for name in sys.modules)"
    code = f"import sys, lance_core; lance_core.dataset, lance_core.write_dataset; print({made})"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(answer.stdout) <= 270


WORKS = """
import sys
import lance_core
uri, copy = sys.argv[1:]
table = lance_core.dataset(uri)
table.to_table(with_row_id=True)
rows = table.to_table()
works = {
    "take": lambda: table.take([5, 1, 5, 900]),
    "take many": lambda: table.take(list(range(0, 3000, 2))),
    "compare": lambda: table.to_table(filter="number < 5 AND NOT text = 'row 3' OR number * 1.5 > 4000"),
    "in": lambda: table.to_table(filter="number IN (5, 7) OR number BETWEEN 9 AND 11 OR text LIKE 'row 1%'"),
    "count": lambda: table.count_rows("text IS NOT NULL AND number = 5"),
    "order": lambda: table.scanner(order_by=["text"], limit=3).to_table(),
    "write": lambda: lance_core.write_dataset(rows, copy),
    "append": lambda: lance_core.write_dataset(rows, copy, mode="append"),
    "delete": lambda: lance_core.dataset(copy).delete("number = 3"),
    "update": lambda: lance_core.dataset(copy).update({"text": "'none'"}, "number = 5"),
    "merge": lambda: (
        lance_core.dataset(copy).merge_insert("number")
        .when_matched_update_all().when_not_matched_insert_all().execute(rows.slice(0, 10))
    ),
    "add columns": lambda: lance_core.dataset(copy).add_columns({"twice": "number * 2"}),
    "index": lambda: lance_core.dataset(copy).create_scalar_index("text", "BTREE"),
    "compact": lambda: lance_core.dataset(uri).optimize.compact_files(),
    "clean up": lambda: lance_core.dataset(uri).cleanup_old_versions(),
}
for name, work in works.items():
    work()
    assert "pandas" not in sys.modules, name
"""


def test_common_works_do_not_import_pandas(tmp_path):
    """pyarrow imports it for the first array that it makes of Python's or numpy's values, or numpy makes of its own."""
    numbers = np.arange(3000)
    lists = [{"name": f"{one}", "count": one} for one in range(3)]
    table = pa.table(
        {
            "number": numbers,
            "text": [f"row {one}" for one in numbers],
            "words": [f"word {one % 7}" for one in numbers],
            "lists": pa.array([lists[: one % 4] if one % 5 else None for one in range(3000)]),
        }
    )
    dataset = lance_core.write_dataset(table, tmp_path / "t", max_rows_per_file=2000)
    dataset.delete("number = 3")
    subprocess.run([sys.executable, "-c", WORKS, dataset.uri, str(tmp_path / "copy")], check=True)
