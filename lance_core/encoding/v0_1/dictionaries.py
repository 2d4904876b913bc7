"""Dictionaries of files of version 0.1: one for each column, which all files of a table share.

Keys of old files stay right when values are appended to the dictionary, so that it may grow but never change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from lance_core.encoding.arrow_values import buffer_view, from_values, null_mask, offset_dtype, to_values
from lance_core.encoding.values import VariableValues
from lance_core.errors import InvalidInputError
from lance_core.format.arrow_kinds import is_bytes
from lance_core.format.dictionary_values import LegacyDictionary

if TYPE_CHECKING:
    import numpy.typing as npt

    from lance_core.encoding.values import Int64s

pc: Any = pyarrow.compute  # its functions are made when it is imported, type checkers do not see them


def dictionary_of(values: pa.Array) -> LegacyDictionary:
    """Return the dictionary that holds these values; nulls among strings become empty."""
    if offset_dtype(values.type) is None:
        start = values.offset * (width := values.type.bit_width // 8)
        data = buffer_view(values.buffers()[1], np.uint8)[start : start + len(values) * width]
        return LegacyDictionary(len(values), data.tobytes(), None)
    strings = to_values(values.fill_null(b"" if is_bytes(values.type) else ""))
    assert isinstance(strings, VariableValues)  # noqa: S101 for the type checker: they are strings
    offsets = strings.offsets.astype("<i8")
    data = strings.data[int(offsets[0]) : int(offsets[-1])]
    return LegacyDictionary(len(values), data.tobytes(), (offsets - offsets[0]).tobytes())


def values_of(dictionary: LegacyDictionary, kind: pa.DataType) -> pa.Array:
    """Return the values of a dictionary; empty strings are nulls, as readers take them.

    Args:
        dictionary: The dictionary.
        kind: Type of the values.
    """
    if dictionary.ends is None:
        return pa.Array.from_buffers(kind, dictionary.num_values, [None, pa.py_buffer(dictionary.data)])
    offsets = np.frombuffer(dictionary.ends, "<i8")
    is_filled = offsets[1:] > offsets[:-1]
    strings = VariableValues(offsets, np.frombuffer(dictionary.data, np.uint8))
    return from_values(strings, kind, None if is_filled.all() else is_filled, dictionary.num_values)


class DictionaryBuilder:
    """The dictionary of one column, which grows by the values that it meets.

    Args:
        kind: Dictionary type of the column.
        known: What the dictionary begins with: that of the table, if there is one.
        path: Name of the column for error messages.
    """

    def __init__(self, kind: pa.DictionaryType, existing: LegacyDictionary | None, path: str) -> None:
        self._kind = kind
        self._path = path
        self._values: pa.Array = (
            pa.nulls(0, kind.value_type) if existing is None else values_of(existing, kind.value_type)
        )
        self._same: pa.Array | None = None

    def check(self, array: pa.DictionaryArray) -> None:
        """Refuse values that readers would not get back.

        Raises:
            InvalidInputError: An empty string, or null where the dictionary has no place for it.
        """
        is_text = offset_dtype(self._kind.value_type) is not None
        if not is_text and array.null_count + array.dictionary.null_count:
            num_nulls = int(pc.sum(pc.is_null(array.dictionary_decode())).as_py() or 0)
            if num_nulls:
                raise InvalidInputError(
                    f"field {self._path!r} has {num_nulls} nulls; file version 0.1 cannot store nulls of type "
                    f"{self._kind}. Fill them, or use file version 2.2"
                )
        if is_text and pc.any(pc.equal(pc.binary_length(array.dictionary), 0)).as_py():
            num_empty = int(pc.sum(pc.equal(pc.binary_length(array.dictionary_decode()), 0)).as_py() or 0)
            if num_empty:
                raise InvalidInputError(
                    f"field {self._path!r} has {num_empty} empty values of type {self._kind}; file version 0.1 would "
                    "return them as nulls. Replace them by nulls, or use file version 2.2"
                )

    def keys(self, array: pa.DictionaryArray) -> npt.NDArray[Any]:
        """Return the keys of values that passed `check`; new values enter the dictionary.

        Raises:
            InvalidInputError: The index type has too few keys.
        """
        given: pa.Array = array.dictionary
        dtype = np.dtype(self._kind.index_type.to_pandas_dtype())
        stored = array.indices
        indices = buffer_view(stored.buffers()[1], dtype)[stored.offset : stored.offset + len(array)]
        is_null = null_mask(stored)
        if not len(self._values) and not given.null_count and not self._has_empty(given):
            self._grow(given)
        if is_null is None and self._is_same(given):
            return indices
        used = indices if is_null is None else indices[~is_null]
        keys = self._keys_of(given, np.unique(used).astype(np.int64))
        all_keys = np.full(len(array), -1, np.int64)
        all_keys[slice(None) if is_null is None else ~is_null] = keys[used.astype(np.int64)]
        if (all_keys < 0).any():
            all_keys[all_keys < 0] = self._null_key()
        return all_keys.astype(dtype)

    def dictionary(self) -> LegacyDictionary:
        """Return the dictionary as it is stored."""
        return dictionary_of(self._values)

    def _is_same(self, given: pa.Array) -> bool:
        """Return whether a dictionary is this one; row groups of one batch share theirs, so it is compared once."""
        if self._same is not None and _location(self._same) == _location(given):
            return True
        is_same = given.equals(self._values)
        self._same = given if is_same else None
        return is_same

    @staticmethod
    def _has_empty(values: pa.Array) -> bool:
        return offset_dtype(values.type) is not None and bool(pc.any(pc.equal(pc.binary_length(values), 0)).as_py())

    def _keys_of(self, given: pa.Array, used: Int64s) -> Int64s:
        """Shape (len(given),): the key of each value that is used; -1 for null, and for those that are not used."""
        keys = np.full(len(given), -1, np.int64)
        filled = used[np.asarray(given.take(pa.array(used)).is_valid())]
        wanted = given.take(pa.array(filled))
        indices = pc.index_in(wanted, value_set=self._values)
        if indices.null_count:
            self._grow(wanted.filter(indices.is_null()).unique())
            indices = pc.index_in(wanted, value_set=self._values)
        keys[filled] = np.asarray(indices)
        return keys

    def _null_key(self) -> int:
        if not self._values.null_count:
            self._grow(pa.nulls(1, self._kind.value_type))
        return int(np.flatnonzero(np.asarray(self._values.is_null()))[0])

    def _grow(self, values: pa.Array) -> None:
        count = len(self._values) + len(values)
        if count > int(np.iinfo(self._kind.index_type.to_pandas_dtype()).max) + 1:
            raise InvalidInputError(
                f"field {self._path!r}: its dictionary would hold {count:,} values, too many for keys of type "
                f"{self._kind.index_type}, and all files of version 0.1 share it. Use a wider index type"
            )
        self._values = pa.concat_arrays([self._values, values])
        self._same = None


def _location(array: pa.Array) -> tuple[int, int, list[int]]:
    """Return the identity of a live array: its address in memory."""
    return array.offset, len(array), [0 if buffer is None else buffer.address for buffer in array.buffers()]
