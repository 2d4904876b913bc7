"""Type -> handler, without importing a library that nobody uses."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from lance_core.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_dagster.handlers.base import TypeHandler

# "package.Class" -> module and name of the handler. A class matches through its bases, so that Spark's classic and
# Connect frames both do, and users' subclasses.
_HANDLERS = {
    "pyspark.DataFrame": ("spark", "SPARK"),
    "pyarrow.Table": ("arrow", "ARROW"),
    "pyarrow.RecordBatchReader": ("arrow", "ARROW"),
    "pyarrow.RecordBatch": ("arrow", "ARROW"),
    "pyarrow.Dataset": ("arrow", "ARROW"),
    "lance_core.LanceDataset": ("lance", "LANCE"),
    "lance_core.LanceScanner": ("lance", "LANCE"),
    "pandas.DataFrame": ("pandas", "PANDAS"),
    "polars.DataFrame": ("polars", "POLARS"),
    "polars.LazyFrame": ("polars", "POLARS_LAZY"),
    "duckdb.DuckDBPyRelation": ("duckdb", "DUCKDB"),
}


def handler_for(type_: type, handlers: Sequence[TypeHandler] = ()) -> TypeHandler:
    """Return the handler of a frame type.

    Args:
        type_: Of the value, or of an annotation.
        handlers: Handlers that come before the built-in ones.

    Raises:
        UnsupportedError: For any other type.
    """
    by_name = {name: handler for handler in reversed(handlers) for name in handler.types}
    for base in type_.__mro__:
        name = f"{base.__module__.partition('.')[0]}.{base.__name__}"
        if name in by_name:
            return by_name[name]
        if name in _HANDLERS:
            module, attribute = _HANDLERS[name]
            handler: TypeHandler = getattr(importlib.import_module(f"lance_dagster.handlers.{module}"), attribute)
            return handler
    name = type_.__qualname__ if type_.__module__ == "builtins" else f"{type_.__module__}.{type_.__qualname__}"
    names = ", ".join([*by_name, *_HANDLERS])
    msg = (
        f"{name} is no frame that a Lance table can be stored from or loaded as. Return, or annotate the input as, one "
        f"of these, or add others by `type_handlers` of the IO manager: {names}."
    )
    raise UnsupportedError(msg)
