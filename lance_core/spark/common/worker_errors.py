"""Errors that Spark's Python workers report to the user."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar, cast

from lance_core.errors import LanceError

if TYPE_CHECKING:
    from collections.abc import Callable

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def without_traceback(method: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Let Spark report an error that is meant for users by its type and message only.

    Other errors are mistakes of ours, whose tracebacks are needed. For methods, also generators, that Spark calls.
    """

    @wraps(method)
    def call(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        try:
            result = method(*args, **kwargs)
        except LanceError:
            _hide_traceback()
            raise
        return cast("_Result", _guarded(result)) if isinstance(result, Generator) else result

    return call


def _guarded(items: Generator[object]) -> Generator[object]:
    try:
        yield from items
    except LanceError:
        _hide_traceback()
        raise


def _hide_traceback() -> None:
    """Tell pyspark. The process ends with the error, so others that run here later keep their tracebacks."""
    # Spark 4.1 does not tell a worker by its environment that it is one.
    if os.environ.get("SPARK_PYTHON_RUNTIME") == "PYTHON_WORKER" or sys.orig_argv[1:3] == ["-m", "pyspark.daemon"]:
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
