"""Small pages of columns that are alike, encoded at one go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lance_core.encoding.layouts.small_page import MAX_VALUES, OFFSETS, encode_strings, encode_words
from lance_core.file.write.v2_1 import FieldWriterV21

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_core.encoding.layouts.page import EncodedPage
    from lance_core.file.write.v2_0 import FieldWriterV20

FIXED_WIDTH: dict[int, np.dtype[Any]] = {
    kind.id: np.dtype(f"<u{kind.bit_width // 8}")
    for kind in (
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        *(pa.float16(), pa.float32(), pa.float64()),
        *(pa.date32(), pa.date64(), pa.time32("s"), pa.time64("us"), pa.timestamp("s"), pa.duration("s")),
    )
}
"""Words that values consist of, by the number of the Arrow type."""


def num_bytes_of(array: pa.Array) -> int:
    """As ``array.nbytes``, which takes longer than all else that is done to a small array of words as it comes in."""
    kind = FIXED_WIDTH.get(array.type.id)
    return array.nbytes if kind is None or array.buffers()[0] is not None else kind.itemsize * len(array)


def encode_together(
    columns: Sequence[tuple[FieldWriterV20 | FieldWriterV21, Sequence[pa.Array]]], version: str
) -> dict[int, EncodedPage]:
    """Encode what columns have collected.

    Args:
        columns: Writers of fields, and the rows that wait for their page.
        version: Version of the file, by name.

    Returns:
        By number of the column its page; the others are better off alone.
    """
    columns_alike: dict[tuple[int, int], dict[int, Any]] = {}
    strings: dict[int, dict[int, pa.Array]] = {}
    for number, (writer, arrays) in enumerate(columns):
        if not isinstance(writer, FieldWriterV21) or not writer.is_bare or len(arrays) != 1:
            continue
        array = arrays[0]
        count, identity = len(array), array.type.id
        if count > MAX_VALUES or array.null_count:
            continue
        kind = FIXED_WIDTH.get(identity)
        if kind is not None:
            values = np.frombuffer(array.buffers()[1], kind, count, array.offset * kind.itemsize)
            columns_alike.setdefault((kind.itemsize, count), {})[number] = values
        elif identity in OFFSETS:
            strings.setdefault(count, {})[number] = array
    pages: dict[int, EncodedPage] = {}
    for encode, groups in ((encode_words, columns_alike), (encode_strings, strings)):
        for alike in groups.values():
            values = encode([*alike.values()], version)
            pages |= {number: page for number, page in zip(alike, values, strict=True) if page is not None}
    return pages
