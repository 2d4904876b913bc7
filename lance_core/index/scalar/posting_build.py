"""Build the sets of rows that bitmap, list and trigram indices keep for each key, in bounded memory."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_core.encoding.kernels import numbers_array
from lance_core.format.index.row_sets import merged_parts, parts_of_each
from lance_core.index.external_sort import ExternalSort
from lance_core.index.order import order_of_numbers, sort_keys
from lance_core.sql.kernels import pc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lance_core.format.index.row_sets import Part

Int64s: TypeAlias = npt.NDArray[np.int64]

_PENDING_ROWS = 1 << 22
"""Pairs of key and row that are put in order together; each key's rows among them become one part."""
_BATCH_BYTES = 16 << 20
_SHIFT = 32


class PostingSort:
    """Collects pairs of key and row, and returns the rows of each key, keys ascending.

    Use it as a context manager; it removes its temporary files.

    Args:
        kind: Type of the keys.
        max_memory_bytes: Memory that it may take.
    """

    def __init__(self, kind: pa.DataType, max_memory_bytes: int) -> None:
        self._kind = kind
        self._schema = pa.schema([("key", kind), ("high", pa.uint32()), ("rows", pa.large_binary())])
        self._sort = ExternalSort(self._schema, max_memory_bytes)
        self._pending: list[tuple[pa.Array, Int64s]] = []
        self._num_pending = 0
        self._most_pending = max(1, min(_PENDING_ROWS, max_memory_bytes // 128))

    def __enter__(self) -> Self:
        """Return the object itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Remove temporary files."""
        self._sort.__exit__()

    def add(self, keys: pa.Array, rows: Int64s) -> None:
        """Add pairs; a pair may come more than once."""
        self._pending.append((keys, rows))
        self._num_pending += len(keys)
        if self._num_pending >= self._most_pending:
            self._flush()

    def add_sets(self, keys: pa.Array, sets: Sequence[Sequence[Part]]) -> None:
        """Add the rows of some keys, as parts; a key may come again, with some of the same rows."""
        numbers = np.repeat(np.arange(len(keys)), [len(parts) for parts in sets])
        parts = [part for parts in sets for part in parts]
        columns = [keys.take(numbers_array(numbers)), [high for high, _ in parts], [data for _, data in parts]]
        self._sort.add(_batch(self._schema, columns))

    def batches(self, schema: pa.Schema, encode: Callable[[Sequence[Part]], bytes]) -> Iterator[pa.RecordBatch]:
        """Return keys and their encoded sets of rows in batches of a schema."""
        self._flush()
        pending: list[pa.Array] = []
        sets: list[bytes] = []
        size = 0
        for keys, groups in self._groups():
            start = 0
            for end, parts in enumerate(groups, 1):
                sets.append(encode(merged_parts(parts)))
                size += len(sets[-1])
                if size >= _BATCH_BYTES:
                    yield _batch(schema, [pa.concat_arrays([*pending, keys.slice(start, end - start)]), sets])
                    pending, sets, size, start = [], [], 0, end
            pending.append(keys.slice(start))
        if sets:
            yield _batch(schema, [pa.concat_arrays(pending), sets])

    def _flush(self) -> None:
        """Put the pairs in order by key, and hand the rows of each key on as parts."""
        if not self._pending:
            return
        pairs, self._pending, self._num_pending = self._pending, [], 0
        keys = pa.chunked_array([array for array, _ in pairs], self._kind)
        rows = np.concatenate([array for _, array in pairs])
        codes, distinct = _codes_of(keys)
        order = order_of_numbers(codes)
        codes, rows = codes[order], rows[order]
        edges = np.append(np.searchsorted(codes, np.arange(len(distinct))), len(codes))
        self.add_sets(distinct, parts_of_each(rows, edges))

    def _groups(self) -> Iterator[tuple[pa.Array, list[list[Part]]]]:
        """Return keys, ascending and each once, and the parts of each."""
        last: tuple[pa.Array, list[Part]] | None = None  # its parts may go on in the next batch
        for batch in self._sort.batches():
            keys, high, data = batch.columns
            parts = list(zip(high.to_pylist(), data.to_pylist(), strict=True))
            starts = [0, *_changes(keys)]
            groups = [parts[start:end] for start, end in pairwise([*starts, len(keys)])]
            keys = keys.take(pa.array(starts, pa.int64()))
            if last is not None and _same(last[0], keys[:1]):
                groups[0] = last[1] + groups[0]
            elif last is not None:
                yield last[0], [last[1]]
            last = keys[-1:], groups.pop()
            yield keys[:-1], groups
        if last is not None:
            yield last[0], [last[1]]


def _codes_of(keys: pa.ChunkedArray) -> tuple[npt.NDArray[np.unsignedinteger], pa.Array]:
    """Return a number for each key and the distinct keys by number; floats are distinct by their bits."""
    kind = keys.type
    plain = keys
    if pa.types.is_floating(kind) or pa.types.is_temporal(kind) or pa.types.is_boolean(kind):
        plain = pa.chunked_array([_plain(chunk) for chunk in keys.chunks])
    encoded = pc.dictionary_encode(plain, null_encoding="encode").combine_chunks()
    encoded = encoded.chunk(0) if isinstance(encoded, pa.ChunkedArray) else encoded
    distinct, codes = encoded.dictionary, encoded.indices.to_numpy(zero_copy_only=False)
    if distinct.type != kind:
        distinct = distinct.cast(kind) if pa.types.is_boolean(kind) else distinct.view(kind)
    return codes.astype(np.uint16 if len(distinct) < 1 << 16 else np.uint32), distinct


def _plain(values: pa.Array) -> pa.Array:
    if pa.types.is_boolean(values.type):
        return values.cast(pa.uint8())
    return values.view({16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[values.type.bit_width])


def _changes(keys: pa.Array) -> list[int]:
    """Return the places of sorted keys that differ from the one before."""
    num_nulls = keys.null_count
    comparable = sort_keys(keys.slice(num_nulls))
    positions = np.flatnonzero(np.asarray(comparable[1:] != comparable[:-1], np.bool_)) + 1 + num_nulls
    first = [num_nulls] if 0 < num_nulls < len(keys) else []
    return first + positions.tolist()


def _same(left: pa.Array, right: pa.Array) -> bool:
    if left.null_count or right.null_count:
        return bool(left.null_count and right.null_count)
    return bool(sort_keys(left)[0] == sort_keys(right)[0])


def _batch(schema: pa.Schema, columns: Sequence[object]) -> pa.RecordBatch:
    arrays = [
        column if isinstance(column, pa.Array) else pa.array(column, field.type)
        for column, field in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
