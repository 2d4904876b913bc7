"""Type -> handler, without importing a library that nobody uses."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from lance_core.errors import UnsupportedError

if TYPE_CHECKING:
    from lance_dagster.handlers.base import TypeHandler

# (top-level package, class) -> (module, class) of the handler. A class matches through its bases, so that Spark's
# classic and Connect frames both do, and users' subclasses.
_HANDLERS = {
    ("pyarrow", "Table"): ("arrow", "ArrowHandler"),
    ("pyarrow", "RecordBatchReader"): ("arrow", "ArrowHandler"),
    ("pyarrow", "RecordBatch"): ("arrow", "ArrowHandler"),
    ("lance_core", "LanceDataset"): ("arrow", "ArrowHandler"),
    ("pandas", "DataFrame"): ("pandas", "PandasHandler"),
    ("polars", "DataFrame"): ("polars", "PolarsHandler"),
    ("polars", "LazyFrame"): ("polars", "PolarsHandler"),
    ("pyspark", "DataFrame"): ("spark", "SparkHandler"),
}


def handler_for(type_: type) -> TypeHandler:
    """The handler of a frame type.

    Raises:
        UnsupportedError: For any other type.
    """
    for base in type_.__mro__:
        found = _HANDLERS.get((base.__module__.partition(".")[0], base.__name__))
        if found is not None:
            module, name = found
            handler: TypeHandler = getattr(importlib.import_module(f"lance_dagster.handlers.{module}"), name)()
            return handler
    known = ", ".join(f"{package}.{name}" for package, name in _HANDLERS)
    msg = f"Storing or loading {type_.__module__}.{type_.__qualname__} in a Lance table (known: {known})"
    raise UnsupportedError(msg)
