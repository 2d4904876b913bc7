"""Small pages of columns that are alike, encoded at one go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_core.encoding.arrow_values import words_of
from lance_core.encoding.structural.small_page import MAX_VALUES
from lance_core.encoding.structural.small_words import encode_words
from lance_core.file.write_v2_1 import FieldWriterV21

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    import pyarrow as pa

    from lance_core.encoding.structural.page import EncodedPage
    from lance_core.file.field_writer import FieldWriter

_FEWEST = 2
"""Columns that are worth the trouble."""


def encode_together(columns: Sequence[tuple[FieldWriter, Sequence[pa.Array]]], version: str) -> dict[int, EncodedPage]:
    """Encode what columns have collected.

    Args:
        columns: Writers of fields, and the rows that wait for their page.
        version: Version of the file, by name.

    Returns:
        By number of the column its page; the others are better off alone.
    """
    alike: dict[tuple[int, int], tuple[list[int], list[npt.NDArray[Any]]]] = {}
    for number, (writer, arrays) in enumerate(columns):
        words = _words(writer, arrays)
        if words is not None:
            numbers, values = alike.setdefault((words.itemsize, len(words)), ([], []))
            numbers.append(number)
            values.append(words)
    pages: dict[int, EncodedPage] = {}
    for numbers, values in alike.values():
        if len(numbers) >= _FEWEST:
            found = encode_words(values, version)
            pages |= {number: page for number, page in zip(numbers, found, strict=True) if page is not None}
    return pages


def _words(writer: FieldWriter, arrays: Sequence[pa.Array]) -> npt.NDArray[Any] | None:
    """The values of a column that waits for a small page, if they are words without nulls."""
    if not isinstance(writer, FieldWriterV21) or len(arrays) != 1 or not writer.has_words:
        return None
    array = arrays[0]
    return None if array.null_count or len(array) > MAX_VALUES else words_of(array)
