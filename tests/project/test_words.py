"""Names and docstrings use the words of the field: the retired ones of the glossary stay out."""

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("lance_core", "lance_dagster", "example_project")

# Names that say nothing about the thing, and ordinary words that stood for something the field has a word for.
RETIRED_NAMES = {
    "ahead": "read_ahead",
    "coded": "dictionary-encoded values",
    "descent": "ancestry",
    "few": "scalar path",
    "found": "what was found: snapshot, match, result",
    "handover": "staged transaction",
    "held": "cached",
    "kept": "selected",
    "known": "cached, existing, previous",
    "learnt": "cached",
    "marks": "bitmap",
    "one": "what it is: column, reader, batch, row",
    "outline": "layout",
    "own": "whose it is",
    "passage": "cursor",
    "passing": "cursor",
    "place": "index, position, address",
    "places": "indices, offsets, locations",
    "points": "scattered rows",
    "redo": "retry",
    "several": "what they are",
    "spots": "byte ranges",
    "steps": "I/O coroutine, read plan",
    "sums": "checksums",
    "traces": "leftovers",
    "waits": "I/O coroutine",
    "words": "fixed-width values",
}
# Retired wherever they stand in a name.
RETIRED_PARTS = re.compile(r"(?:^|_)(?:spots?|coded|learnt|handover|passage|passing|outlines?|side_by_side)(?:_|$)")
RETIRED_STARTS = re.compile(r"^_*(?:single|few)_")
RETIRED_PROSE = re.compile(
    r"\b(?:(?:main|same|this) line(?: of versions)?|lines? of versions|spots|handovers?|learnt|outlines?|coded)\b",
    re.IGNORECASE,
)
QUESTION = re.compile(r"(?:Where|Which|What|How|Whether|Who|Whose|Whom|Why|When)\b|.*\bwhat is to be\b", re.IGNORECASE)

# Names in an ordinary sense.
ORDINARY: dict[tuple[str, str], str] = {
    ("lance_core/sql/json_path.py", "steps"): "of a JSON path",
    **{(f"lance_core/maintenance/{name}.py", "steps"): "of a repair" for name in ("diagnose", "repair", "repair_plan")},
}


@dataclass(frozen=True, kw_only=True)
class Source:
    """A module: its path, the names that it gives, and its docstrings by the name of what they describe."""

    path: str
    names: tuple
    docstrings: tuple


@cache
def sources():
    paths = [
        path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")) if "_proto" not in path.parts
    ]
    assert len(paths) > 100
    return [source_of(path) for path in paths]


def source_of(path):
    names, docstrings = [path.stem], []
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.Module():
                name = getattr(node, "name", "module")
                names += [name] if name != "module" else []
                text = ast.get_docstring(node)
                docstrings += [(name, text)] if text else []
            case ast.arg():
                names.append(node.arg)
            case ast.Name(ctx=ast.Store()):
                names.append(node.id)
            case ast.Attribute(ctx=ast.Store()):
                names.append(node.attr)
    return Source(path=str(path.relative_to(ROOT)), names=tuple(names), docstrings=tuple(docstrings))


@cache
def is_retired(name):
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().strip("_")
    return words in RETIRED_NAMES or bool(RETIRED_PARTS.search(words) or RETIRED_STARTS.match(words))


def retired_names():
    for source in sources():
        for name in source.names:
            if is_retired(name) and (source.path, name) not in ORDINARY:
                yield f"{source.path}: {name}"


def retired_prose():
    for source in sources():
        for name, text in source.docstrings:
            for match in RETIRED_PROSE.finditer(text):
                yield f"{source.path}: {name}: {match[0]}"


def questions():
    for source in sources():
        for name, text in source.docstrings:
            first = text.splitlines()[0]
            if QUESTION.match(first):
                yield f"{source.path}: {name}: {first}"


@pytest.mark.parametrize("kind", [retired_names, retired_prose, questions])
def test_no_retired_words_are_left(kind):
    assert list(kind()) == []


def test_retired_words_are_recognised():
    assert [
        name for name in ("one", "_known", "Places", "few_values", "single_rows", "SpotList") if not is_retired(name)
    ] == []
    assert [
        name for name in ("one_of", "is_known", "not_found", "DatasetNotFoundError", "file_layout") if is_retired(name)
    ] == []
    assert QUESTION.match("Which rows match.")
    assert not QUESTION.match("Return whether rows match.")


def test_ordinary_names_are_still_there():
    names = {(source.path, name) for source in sources() for name in source.names}
    assert set(ORDINARY) - names == set()
