"""Arrow's compute functions, imported when one is called that needs it: that takes as long as the rest of pyarrow.

`pyarrow.compute` wraps 300 kernels in functions. Casts, comparisons and what else has no options
do without it.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lance_core.encoding.arrow_values import as_mask, buffer_view, mask_array
from lance_core.encoding.kernels import FALSE_SCALAR, numbers_array

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

_MODULE = "pyarrow.compute"


class _Kernels:
    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        module = sys.modules.get(_MODULE)
        function = _late(name) if module is None else getattr(module, name, None)
        # Of a module that another thread is about to import not all is there: it is waited for.
        return getattr(importlib.import_module(_MODULE), name) if function is None else function


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


_LEAST_VALUES, _MOST_MEMBERS = 1 << 10, 1 << 18
"""Values that Arrow looks up, and values of a set that it looks them up in; it takes 30 to 40 ns for each."""

_HASHED_VALUES = 1 << 13
"""Values whose hashes are held at a time, for the processor's cache."""
_LEAST_SLOT_BITS, _SLOTS_PER_MEMBER = 16, 16
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
"""2^64 divided by the golden ratio: any bits of a number make a difference to the first bits of its product."""


class ValueSet:
    """Values among which those of columns are looked up.

    Args:
        members: The values; none is null.
    """

    def __init__(self, members: pa.Array) -> None:
        self._members = members
        self._numbers = _numbers_of(members)
        self._num_bits = max(_LEAST_SLOT_BITS, (_SLOTS_PER_MEMBER * len(members)).bit_length())
        self._slots: npt.NDArray[np.bool_] | None = None

    def mask(self, values: pa.Array) -> pa.BooleanArray:
        """Return which of some values are members; what it says of nulls means nothing.

        Members mark the slots of their hashes in a table. Most other values have slots without a mark, so that few are
        left for Arrow: of 50,000 integers that are looked up among 1,000 it takes 0.3 ms instead of 1.5.
        """
        numbers = _numbers_of(values) if len(values) > _LEAST_VALUES and len(self._members) <= _MOST_MEMBERS else None
        if numbers is None or self._numbers is None:
            return pc.is_in(values, value_set=self._members)
        if self._slots is None:
            marked = np.zeros(1 << self._num_bits, np.bool_)
            marked[self._slots_of(self._numbers)] = True
            self._slots = marked
        is_left = np.empty(len(numbers), np.bool_)
        for start in range(0, len(numbers), _HASHED_VALUES):
            part = slice(start, start + _HASHED_VALUES)
            is_left[part] = self._slots[self._slots_of(numbers[part])]
        left = np.flatnonzero(is_left)
        if 2 * len(left) > len(values):
            return pc.is_in(values, value_set=self._members)
        is_left[left] = as_mask(pc.is_in(values.take(numbers_array(left)), value_set=self._members))
        return mask_array(is_left)

    def _slots_of(self, numbers: npt.NDArray[np.unsignedinteger]) -> npt.NDArray[np.int64]:
        """Return the slot of each value."""
        slots = np.multiply(numbers, _FACTOR, dtype=np.uint64)
        slots >>= np.uint64(64 - self._num_bits)
        return slots.view(np.int64)


def _numbers_of(values: pa.Array) -> npt.NDArray[np.unsignedinteger] | None:
    """Return the bits of each value; None for text, of which Arrow's hashes are as fast, and for truth values."""
    if not pa.types.is_primitive(values.type) or pa.types.is_boolean(values.type):
        return None
    numbers = buffer_view(values.buffers()[1], f"u{values.type.bit_width // 8}")
    return numbers[values.offset : values.offset + len(values)]
