"""Rooms, the packages of the code, have a purpose, are small enough to know, and import what is below them only."""

import ast
import itertools
import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MIN_MODULES, MAX_MODULES = 8, 25
ROOMS = sorted(
    path.parent
    for package in ("lance_core", "lance_dagster")
    for path in (ROOT / package).rglob("__init__.py")
    if path.parent.name != "_proto"
)
DIVIDED = [room for room in ROOMS if room.parent != ROOT and any(inner.parent == room for inner in ROOMS)]
"""Rooms with rooms inside; the layers at the top are a contract in pyproject.toml."""


def name_of(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def modules(room):
    return [path for path in sorted(room.glob("*.py")) if path.name != "__init__.py"]


def imports(paths):
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("room", ROOMS, ids=name_of)
def test_a_room_says_its_purpose_in_a_sentence(room):
    purpose = ast.get_docstring(ast.parse((room / "__init__.py").read_text()))
    assert purpose is not None
    assert purpose.split("\n")[0].endswith(".")


@pytest.mark.parametrize("room", ROOMS, ids=name_of)
def test_a_room_has_few_modules(room):
    assert len(modules(room)) <= MAX_MODULES


def test_a_small_room_says_why_it_stands_alone():
    table = (ROOT / "lance_core" / "README.md").read_text().partition("| why it stands alone |")[2].partition("\n\n")[0]
    told = {
        name for cell in re.findall(r"^\|(.*?)\|", table, re.MULTILINE) for name in re.findall(r"`([\w/]+)/`", cell)
    }
    small = [room for room in ROOMS if len(modules(room)) < MIN_MODULES and "lance_core" in room.parts]
    assert told == {str(room.relative_to(ROOT / "lance_core")) for room in small}
    for room in ROOMS:
        if "lance_dagster" in room.parts:
            purpose = ast.get_docstring(ast.parse((room / "__init__.py").read_text()))
            assert ("\nFew modules, " in purpose) == (len(modules(room)) < MIN_MODULES), room


def modules_of(node, label):
    """Files of a node of the picture: rooms are named with a slash, ``public`` also has the modules beside them."""
    rooms = [ROOT / "lance_core" / name for name in re.findall(r"(\w+)/", label)] or [ROOT / node]
    beside = (ROOT / "lance_core").glob("*.py") if node == "public" else ()
    return [*beside, *(path for room in rooms for path in room.rglob("*.py"))]


def test_arrows_of_the_picture_are_imports():
    picture = (ROOT / "CONTRIBUTING.md").read_text().partition("```mermaid")[2].partition("```")[0]
    labels = dict(re.findall(r'(\w+)\["([^"]*)"\]', picture))
    lines = re.sub(r'\["[^"]*"\]', "", picture).splitlines()
    arrows = [pair for line in lines for pair in itertools.pairwise(line.strip().split(" --> "))]
    assert len(arrows) > 10
    for above, below in arrows:
        names = {name_of(path).removesuffix(".__init__") for path in modules_of(below, labels.get(below, ""))}
        wanted = set(imports(modules_of(above, labels.get(above, ""))))
        wanted |= {name.rpartition(".")[0] for name in wanted}
        assert names & wanted, f"{above} does not import {below}"


def graph_of(room):
    """Imports among the modules of a room and the rooms inside, each of which is one node."""
    inner = [path for path in ROOMS if path.parent == room]
    nodes = {name_of(path): [path] for path in modules(room)}
    nodes |= {name_of(path): sorted(path.rglob("*.py")) for path in inner}
    graph = {}
    for name, paths in nodes.items():
        wanted = set(imports(paths))
        graph[name] = {
            other for other in nodes if other != name and any(f"{one}.".startswith(f"{other}.") for one in wanted)
        }
    return graph


def test_rooms_inside_rooms_import_what_is_below_them():
    graphs = [graph_of(room) for room in DIVIDED]
    assert len(graphs) > 5
    assert sum(map(len, itertools.chain.from_iterable(graph.values() for graph in graphs))) > 100
    for graph in graphs:
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            raise AssertionError(f"rooms import each other: {' -> '.join(error.args[1])}") from error
