"""Choose whether values become indices into a dictionary, and how its items are stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lance_core.encoding.choose import LEAST_RUN_BYTES, sampled_run_bytes
from lance_core.encoding.codecs import bitpack, dictionary, flat, general, variable
from lance_core.encoding.kernels import one_buffer
from lance_core.encoding.options import CODECS, PageOptions
from lance_core.encoding.values import FixedListValues, FixedValues, VariableValues
from lance_core.errors import UnsupportedError
from lance_core.format.file.encodings import Compression, Flat, General, Variable

if TYPE_CHECKING:
    from lance_core.encoding.values import Bytes, Values
    from lance_core.format.file.encodings import Encoding

_BLOCK_LZ4_PAYS = 0.75
_MIN_COMPRESSED_BYTES = 1 << 12
_WORD_BITS = 64
_FREE = PageOptions()


def encode_dictionary(items: Values, options: PageOptions = _FREE) -> tuple[Encoding, Bytes]:
    """Encode the items of a dictionary as one block.

    Args:
        items: Values of fixed or variable width.
        options: How to write.

    Raises:
        UnsupportedError: Items of another kind.
    """
    match items:
        case FixedValues():
            encoding, block = Flat(flat.bits_of(items)), flat.to_bytes(items.data)
        case VariableValues():
            encoding, block = Variable(items.offsets.dtype.itemsize * 8), variable.encode_block(items)
        case FixedListValues():
            raise UnsupportedError("dictionary of fixed-size lists")
    asked, level = options.dict_values_compression, options.dict_values_compression_level
    if asked == "none" or (asked is None and len(block) < _MIN_COMPRESSED_BYTES):
        return encoding, block
    codec, pays = (Compression.LZ4, _BLOCK_LZ4_PAYS) if asked is None else (CODECS[asked], 1.0)
    chunk = one_buffer(block, np.array([0, len(block)]), np.array([len(items)], np.int64))
    compressed = general.compress_chunks(codec, chunk, level=level).buffers[0]
    if len(compressed) > len(block) * pays:
        return encoding, block
    return General(codec, encoding, general.stored_level(codec, level)), compressed


def build_dictionary(
    values: Values, options: PageOptions = _FREE
) -> tuple[FixedValues, FixedValues | VariableValues] | None:
    """Split values into indices and items if that saves bytes.

    Args:
        values: Any values; only strings and values of 8 bytes and more are considered.
        options: How to write.

    Returns:
        Indices (uint8, uint16 or uint32) and items, or None.
    """
    if isinstance(values, FixedListValues) or (isinstance(values, FixedValues) and flat.bits_of(values) < _WORD_BITS):
        return None
    distinct = dictionary.sampled_distinct(values)
    if distinct is None or distinct * options.dict_divisor > len(values):
        return None
    otherwise = _bytes_otherwise(values)
    if _index_bytes(len(values), distinct) > otherwise * options.dict_size_ratio:
        return None
    built = dictionary.build(values, most=len(values) // options.dict_divisor)
    if built is None:
        return None
    _, items = built
    return built if saves_bytes(_index_bytes(len(values), len(items)), items, otherwise, options) else None


def saves_bytes(
    index_bytes: float, items: FixedValues | VariableValues, otherwise: float, options: PageOptions = _FREE
) -> bool:
    """Return whether indices and items leave enough of the bytes that the values take otherwise."""
    item_bytes = items.data.nbytes + (items.offsets.nbytes if isinstance(items, VariableValues) else 0)
    return index_bytes + item_bytes <= otherwise * options.dict_size_ratio


def _index_bytes(count: int, distinct: int) -> float:
    """Return bytes of packed indices."""
    return count * max(1, (distinct - 1).bit_length()) / 8


def _bytes_otherwise(values: FixedValues | VariableValues) -> float:
    """Return the bytes of values without dictionary."""
    if isinstance(values, VariableValues):
        return string_bytes(int(values.offsets[-1] - values.offsets[0]), len(values))
    data = values.data
    if data.ndim > 1 or len(data) == 0:
        return data.nbytes
    packed_bytes = bitpack.inline_bytes(values, bitpack.inline_widths(values))
    return word_bytes(data.nbytes, packed_bytes, sampled_run_bytes(data))


def string_bytes(num_bytes: int, count: int) -> int:
    """Return the bytes that strings come to without dictionary, by the cheapest guess: 2 bytes for each offset."""
    return num_bytes + 2 * count


def word_bytes(plain_bytes: int, packed_bytes: int, run_bytes: float, *, is_small: bool = False) -> float:
    """Return the bytes that words come to without dictionary, by the cheapest guess: plain, packed, or as runs.

    Args:
        plain_bytes: Bytes of the words as they are.
        packed_bytes: Bytes if they are packed.
        run_bytes: Bytes if they are runs.
        is_small: They are those of a small page.
    """
    return min(plain_bytes, packed_bytes, max(run_bytes, LEAST_RUN_BYTES) if is_small else run_bytes)
