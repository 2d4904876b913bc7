"""Arrow's compute functions, imported when one is called that needs it: that takes as long as the rest of pyarrow.

`pyarrow.compute` wraps 300 kernels in functions. Casts, comparisons and what else has no options
do without it.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from lance_core.encoding.kernels import FALSE_SCALAR

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

_MODULE = "pyarrow.compute"


class _Kernels:
    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        late = None if _MODULE in sys.modules else _late(name)
        return getattr(importlib.import_module(_MODULE), name) if late is None else late


def _late(name: str) -> Callable[..., Any] | None:
    """Return a function that calls a kernel, and imports the module for options only; None if there is no kernel."""
    kernels: Any = importlib.import_module("pyarrow._compute")
    if name == "cast":
        return _cast
    try:
        kernel = kernels.get_function(name.removesuffix("_"))  # as in `and_`
    except KeyError:
        return None
    most = sys.maxsize if kernel.arity is ... else kernel.arity

    def call(*values: Any, **options: Any) -> Any:
        if options or len(values) > most:  # options may be given by their place
            return getattr(importlib.import_module(_MODULE), name)(*values, **options)
        return kernel.call(list(values))

    return call


def _cast(values: Any, target_type: pa.DataType | None = None, *, safe: bool = True, options: Any = None) -> Any:
    """Convert to another type as the function of that name does; conditions do so with most literals."""
    kernels: Any = importlib.import_module("pyarrow._compute")
    if options is None:
        options = kernels.CastOptions.safe(target_type) if safe else kernels.CastOptions.unsafe(target_type)
    return kernels.call_function("cast", [values], options)


pc: Any = _Kernels()
"""Stands for the module ``pyarrow.compute``, whose functions type checkers do not see anyway."""


def nulls_as_false(answer: Any) -> Any:
    """Return booleans, or a scalar, with false in the place of nulls.

    Arrow's ``fill_null`` and ``coalesce`` take 10 ns for each boolean, a hundred times as long.
    """
    return pc.if_else(pc.is_valid(answer), answer, FALSE_SCALAR)
