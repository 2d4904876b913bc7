"""Small pages of strings without nulls that repeat, of many columns at once; see `small_words`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from lance_core.encoding.choose_dictionary import encode_dictionary
from lance_core.encoding.codecs import dictionary
from lance_core.encoding.codecs.fastlanes import BLOCK
from lance_core.encoding.layouts import small_page
from lance_core.encoding.layouts.page import PlacelessPage
from lance_core.encoding.layouts.small_words import AT_ONCE, bits_of, layout_of, pack_chunks, stack
from lance_core.encoding.values import VariableValues
from lance_core.format.encodings import InlineBitpacking

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

OFFSETS: dict[int, np.dtype[Any]] = {
    kind.id: np.dtype(words)
    for words, kinds in (("<i4", (pa.string(), pa.binary())), ("<i8", (pa.large_string(), pa.large_binary())))
    for kind in kinds
}
"""Type of the offsets, by the number of the Arrow type."""

_Coded: TypeAlias = "tuple[npt.NDArray[np.uint32], VariableValues, int]"
"""Places in a dictionary, its items, and what the strings take without it."""


def encode_strings(columns: Sequence[pa.Array], version: str) -> list[PlacelessPage | None]:
    """Encode pages as `small_page.encode` does, without options.

    Args:
        columns: Strings or binaries without nulls, at least one and at most `small_page.MAX_VALUES`; all equally many.
        version: Version of the file, by name.

    Returns:
        The page of each column; None if another encoding than a dictionary is better.
    """
    pages: list[PlacelessPage | None] = [None] * len(columns)
    for low in range(0, len(columns), AT_ONCE):
        alike: dict[str, list[tuple[int, _Coded]]] = {}
        for at, array in enumerate(columns[low : low + AT_ONCE], low):
            coded = _coded(array)
            if coded is not None:
                alike.setdefault(dictionary.index_dtype(len(coded[1])), []).append((at, coded))
        for kind, some in alike.items():
            found = _encode([coded for _, coded in some], np.dtype(kind), is_large=version != "2.1")
            for (at, _), page in zip(some, found, strict=True):
                pages[at] = page
    return pages


def _coded(array: pa.Array) -> _Coded | None:
    """Strings as places in a dictionary, if that may pay."""
    count, kind = len(array), OFFSETS[array.type.id]
    bounds = np.frombuffer(array.buffers()[1], kind, count + 1, array.offset * kind.itemsize)
    num_bytes = int(bounds[-1]) - int(bounds[0])
    if count < small_page.LEAST_FOR_DICTIONARY or not small_page.are_short(num_bytes, count):
        return None
    encoded = array.dictionary_encode()
    strings = encoded.dictionary
    num_items = len(strings)
    if not 1 < num_items <= count // 2:
        return None
    _, offsets, data = strings.buffers()
    items = VariableValues(np.frombuffer(offsets, kind, num_items + 1), np.frombuffer(data, np.uint8))
    return np.frombuffer(encoded.indices.buffers()[1], "<u4", count), items, num_bytes + 2 * count


def _encode(columns: list[_Coded], kind: np.dtype[Any], *, is_large: bool) -> list[PlacelessPage | None]:
    """As `encode_strings`, for columns whose places are words of one type."""
    blocks = stack([places for places, _, _ in columns], kind)
    bits = bits_of(blocks)
    pays = [
        small_page.dictionary_pays(size, items, most)
        for size, (_, items, most) in zip((bits.sum(axis=1) * (BLOCK // 8)).tolist(), columns, strict=True)
    ]
    packed = pack_chunks(blocks, bits, pays, is_large=is_large)
    encoding, count = InlineBitpacking(kind.itemsize * 8), len(columns[0][0])
    pages: list[PlacelessPage | None] = []
    for (_, items, _), buffers in zip(columns, packed, strict=True):
        if buffers is None:
            pages.append(None)
            continue
        how, block = encode_dictionary(items)
        layout = layout_of(encoding, count, how, len(items), is_large=is_large)
        pages.append(PlacelessPage(layout, [*buffers, block.tobytes()]))
    return pages
