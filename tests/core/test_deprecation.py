"""Deprecated functions and arguments warn their callers, and are gone in the release that they name."""

import ast
import inspect
import warnings
from importlib.metadata import version
from pathlib import Path

import pytest

from lance_core.common.deprecation import deprecated, warn_deprecated

ROOT = Path(__file__).parents[2]


@deprecated(since="0.3", removed_in="0.5", instead="use add")
def plus(a: int, b: int = 1) -> int:
    """Return a sum."""
    return a + b


def test_a_deprecated_function_works_and_warns_its_caller():
    notice = r"^plus is deprecated since 0.3 and removed in 0.5: use add$"
    with pytest.warns(DeprecationWarning, match=notice) as caught:
        assert plus(1, b=2) == 3
    assert caught[0].filename == __file__


def test_a_deprecated_function_keeps_its_signature_and_says_so_in_its_docstring():
    assert str(inspect.signature(plus)) == "(a: int, b: int = 1) -> int"
    assert plus.__doc__.startswith("Return a sum.\n")
    assert "Deprecated: plus is deprecated since 0.3" in plus.__doc__


def test_a_deprecated_argument_warns_the_caller_of_the_function():
    def reads(rank=None):
        if rank is not None:
            warn_deprecated("rank", instead="give a sampler")

    with pytest.warns(DeprecationWarning, match=r"^rank is deprecated by pylance: give a sampler$") as caught:
        reads(rank=1)
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        reads()


def calls_with_removal():
    """Each `removed_in` that the packages name, with its file."""
    for package in ("lance_core", "lance_dagster"):
        for path in (ROOT / package).rglob("*.py"):
            text = path.read_text()
            if "removed_in=" in text and path.name != "deprecation.py":
                for node in ast.walk(ast.parse(text)):
                    if isinstance(node, ast.keyword) and node.arg == "removed_in":
                        yield str(path.relative_to(ROOT)), ast.literal_eval(node.value)


def test_what_this_release_should_no_longer_have_is_gone():
    now = tuple(int(part) for part in version("lance-dagster").split(".")[:2])
    assert [call for call in calls_with_removal() if tuple(map(int, call[1].split("."))) <= now] == []
