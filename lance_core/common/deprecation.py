"""Names and arguments that go: they work and warn until the release that they are removed in."""

from __future__ import annotations

import functools
import inspect
import warnings
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def deprecated(
    *, since: str, removed_in: str, instead: str
) -> Callable[[Callable[_Parameters, _Result]], Callable[_Parameters, _Result]]:
    """Make a decorator for a function that goes: each call warns, and its docstring says so.

    Args:
        since: Release that deprecates it, such as ``0.3``.
        removed_in: Release that no longer has it: at least two minor releases later.
        instead: What to do, such as ``use merge_insert``.
    """

    def decorate(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
        notice = f"{function.__name__} is deprecated since {since} and removed in {removed_in}: {instead}"

        @functools.wraps(function)
        def warning(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
            warnings.warn(notice, DeprecationWarning, stacklevel=2)
            return function(*args, **kwargs)

        warning.__doc__ = f"{inspect.getdoc(function) or function.__name__}\n\nDeprecated: {notice}.\n"
        return warning

    return decorate


def warn_deprecated(name: str, *, instead: str, since: str | None = None, removed_in: str | None = None) -> None:
    """Warn the caller of the function that calls this one of an argument or a value that goes.

    Args:
        name: The argument, as its user writes it.
        instead: What to do, such as ``give a sampler``.
        since: Release that deprecates it; None if pylance does, and lance_core follows it.
        removed_in: Release that no longer takes it; None if it goes when it is gone from pylance.
    """
    when = " by pylance" if since is None else f" since {since} and removed in {removed_in}"
    warnings.warn(f"{name} is deprecated{when}: {instead}", DeprecationWarning, stacklevel=3)
