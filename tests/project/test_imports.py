"""Importing lance_core stays light, because every Spark executor does it."""

import ast
import subprocess
import sys
from pathlib import Path

import pyarrow as pa

import lance_core

HEAVY = ["pyspark", "dagster", "pandas", "polars", "fsspec", "sqlglot", "pyarrow.dataset", "lance"]


def test_import_is_light():
    code = f"import sys, lance_core; lance_core.dataset; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


SELDOM = [
    "zstandard",
    "pyarrow._compute",
    "lance_core.encoding.codecs.fsst",
    "lance_core.encoding.codecs.rle",
    "lance_core.encoding.layouts.sparse",
    "lance_core.encoding.layouts.scattered_lists",
    "lance_core.file.read.scalar",
]


def test_a_take_of_plain_columns_imports_nothing_that_others_need(tmp_path):
    texts = [f"{number * 7919 % 10_007} lines of a log, which repeat what others say" for number in range(20_000)]
    table = lance_core.write_dataset(pa.table({"text": texts, "number": range(20_000)}), tmp_path)
    work = f"rows = lance_core.dataset({table.uri!r}).take(list(range(0, 20_000, 200)))"
    code = f"import sys, lance_core; {work}; print([name for name in {SELDOM!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_condition_on_columns_does_not_import_the_sql_parser(tmp_path):
    table = lance_core.write_dataset(pa.table({"text": ["a", "b"], "number": [1, 2]}), tmp_path)
    work = f"""lance_core.dataset({table.uri!r}).to_table(filter="(number > 1 AND text <> 'a' AND text IS NOT NULL)")"""
    code = f"import sys, lance_core; {work}; print('sqlglot' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_spark_side_does_not_import_dagster():
    code = "import sys, lance_core.spark; print('dagster' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


ROOT = Path(__file__).parents[2]
ROOMS_WITHOUT_CIRCLES = ["index", "scan", "table"]
"""Rooms of lance_core whose modules never import each other in a circle, not even for type checking."""


def _modules(room: str) -> dict[str, ast.Module]:
    folder = ROOT / "lance_core" / room
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): ast.parse(path.read_text())
        for path in folder.rglob("*.py")
    }


def _imported(tree: ast.Module) -> set[str]:
    """Names of modules, and of what is imported from them, which may be modules as well."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def circles(imports: dict[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules that import each other, directly or through others of the group."""
    reached = {name: set(others) for name, others in imports.items()}
    for middle in imports:
        for name in imports:
            if middle in reached[name]:
                reached[name] |= reached[middle]
    groups = {tuple(sorted(other for other in reached[name] if name in reached[other])) for name in imports}
    return sorted(list(group) for group in groups if group)


def test_rooms_have_no_import_circles():
    modules = {name: tree for room in ROOMS_WITHOUT_CIRCLES for name, tree in _modules(room).items()}
    imports = {name: (_imported(tree) & modules.keys()) - {name} for name, tree in modules.items()}
    assert any(imports.values())
    assert circles(imports) == []


def test_circles_are_found():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == [["b", "c"]]
