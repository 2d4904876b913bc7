"""Modules of lance_core import in one direction: no circles, imports for type checking included."""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = "lance_core"


def modules():
    for path in (ROOT / PACKAGE).rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if "_proto" not in parts:
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def imports(path, names):
    """Modules that a file imports at its top, in functions or for type checking."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                module = f"{node.module}.{alias.name}"
                yield module if module in names else node.module


def test_no_import_circle():
    names = dict(modules())
    graph = {name: {other for other in imports(path, names) if other in names} - {name} for name, path in names.items()}
    assert len(graph) > 300
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError(f"import circle: {' -> '.join(error.args[1])}") from error
