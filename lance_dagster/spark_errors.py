"""Errors of Spark's tasks as errors of ours: one message in place of a stack of the JVM."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException, ParseException, PySparkException

from lance_core import errors
from lance_core.errors import InvalidInputError, LanceError, SparkTaskError

if TYPE_CHECKING:
    from collections.abc import Generator

_OURS = re.compile(r"^lance_core\.errors\.(?P<name>\w+): (?P<message>.*)$", re.MULTILINE)
_JVM = re.compile(r"^\s*(at [\w.$]+\(|JVM stacktrace:|Driver stacktrace:|\.\.\. \d+ more)", re.MULTILINE)
_MAX_LINES = 10
_MAX_WIDTH = 500


@contextmanager
def task_errors(uri: str) -> Generator[None, None, None]:
    """Raise errors of Spark's tasks as ours; Spark's own error is the cause.

    Errors of Spark's analysis are about the user's query and short; they stay as they are.

    Args:
        uri: The table that is read or written.

    Raises:
        LanceError: A task failed; of the class that it raised if that is one of ours.
    """
    try:
        yield
    except (AnalysisException, ParseException):
        raise
    except PySparkException as error:
        raise task_error(error, uri) from error


def task_error(error: PySparkException, uri: str) -> LanceError:
    """Return the error of ours that says what a failed Spark job says."""
    parameters = error.getMessageParameters() or {}
    if error.getCondition() == "USER_RAISED_EXCEPTION" and "errorMessage" in parameters:
        return InvalidInputError(parameters["errorMessage"])
    text = parameters.get("traceback") or str(error)
    ours = list(_OURS.finditer(text))
    if ours:
        class_ = getattr(errors, ours[-1]["name"], None)
        if isinstance(class_, type) and issubclass(class_, LanceError):
            return _made(class_, ours[-1]["message"])
    return SparkTaskError(f"A Spark task failed: {_shortened(text)}", path=uri)


def _made(class_: type[LanceError], message: str) -> LanceError:
    """Make an error; a few classes want more than a message."""
    try:
        return class_(message)
    except TypeError:
        return SparkTaskError(f"A Spark task failed: {class_.__name__}: {message}")


def _shortened(text: str) -> str:
    """Return the last lines of a traceback, without those of the JVM."""
    jvm = _JVM.search(text)
    lines = [line[:_MAX_WIDTH] for line in (text if jvm is None else text[: jvm.start()]).splitlines() if line.strip()]
    return "\n".join(lines[-_MAX_LINES:])
