"""Strings: bytes end to end with their ends, compressed by symbols, all of one length, or of a small dictionary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lance_core.encoding.arrow_values import MAX_INT32, from_values, offset_dtype
from lance_core.encoding.codecs import fsst
from lance_core.encoding.kernels import starts_of
from lance_core.encoding.v2_0.buffers import read_rows, read_spans
from lance_core.encoding.v2_0.ends import read_ends
from lance_core.encoding.values import VariableValues
from lance_core.errors import CorruptDataError

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

    from lance_core.encoding.plans import ReadPlan
    from lance_core.encoding.repdef import Mask
    from lance_core.encoding.v2_0.buffers import Wanted
    from lance_core.format.file.array_encoding import Binary, FixedSizeBinary, Fsst


def read_binary(encoding: Binary, wanted: Wanted, kind: pa.DataType) -> ReadPlan[pa.Array]:
    """Strings with their ends.

    Raises:
        CorruptDataError: Ends that do not fit the bytes.
        InvalidInputError: More bytes than 32-bit offsets can tell.
    """
    values, validity = yield from _read(encoding, wanted, kind)
    return from_values(values, kind, validity, len(wanted))


def read_fsst(encoding: Fsst, wanted: Wanted, kind: pa.DataType) -> ReadPlan[pa.Array]:
    """Strings as codes of symbols; errors as in `read_binary`."""
    codes, validity = yield from _read(encoding.values, wanted, kind)
    return from_values(fsst.decode(encoding.symbol_table, codes), kind, validity, len(wanted))


def read_equal(encoding: FixedSizeBinary, wanted: Wanted, kind: pa.DataType) -> ReadPlan[pa.Array]:
    """Strings of one length; errors as in `read_binary`."""
    _check(wanted, kind)
    width = encoding.width
    if not width:
        return from_values(
            VariableValues(np.zeros(len(wanted) + 1, np.int64), np.empty(0, np.uint8)), kind, None, len(wanted)
        )
    data = yield from read_rows(wanted.buffers, encoding.data, wanted.rows, width)
    offsets = np.arange(len(wanted) + 1, dtype=np.int64) * width
    return from_values(VariableValues(offsets, data), kind, None, len(wanted))


def _read(encoding: Binary, wanted: Wanted, kind: pa.DataType) -> ReadPlan[tuple[VariableValues, Mask | None]]:
    _check(wanted, kind)
    spans = yield from read_ends(wanted.buffers, encoding.ends, wanted.rows, encoding.null_adjustment)
    if not spans.is_dense:
        sizes = spans.ends - spans.starts
        data = yield from read_spans(wanted.buffers, encoding.data, spans.starts, sizes)
        return VariableValues(starts_of(sizes), data), spans.validity
    first = spans.starts[:1]
    size = spans.ends[-1:] - first
    data = yield from read_spans(wanted.buffers, encoding.data, first, size)
    is_narrow = offset_dtype(kind) == np.int32 and int(size[0]) <= MAX_INT32
    offsets: npt.NDArray[Any] = np.empty(len(wanted) + 1, np.int32 if is_narrow else np.int64)
    offsets[0] = 0
    np.subtract(spans.ends, first, out=offsets[1:], casting="same_kind")
    return VariableValues(offsets, data), spans.validity


def _check(wanted: Wanted, kind: pa.DataType) -> None:
    if wanted.per_row != 1 or offset_dtype(kind) is None:
        raise CorruptDataError(f"a page has strings for {kind}")
