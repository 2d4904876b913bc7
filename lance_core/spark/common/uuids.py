"""Uuids as Spark has them: text of 36 characters, such as ``123e4567-e89b-12d3-a456-426614174000``."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lance_core.errors import InvalidInputError

NUM_BYTES = 16
_NUM_CHARACTERS = 36
_DASHES = np.array([8, 13, 18, 23])
_DIGITS = np.setdiff1d(np.arange(_NUM_CHARACTERS), _DASHES)
_TEXT = np.frombuffer(b"0123456789abcdef", np.uint8)
_NONE = 16
_VALUES = np.full(256, _NONE, np.uint8)
_VALUES[_TEXT] = np.arange(16)
_VALUES[np.frombuffer(b"ABCDEF", np.uint8)] = np.arange(10, 16)


def format_uuids(array: pa.Array) -> pa.Array:
    """Uuids as text.

    Args:
        array: Fixed-size binary of 16 bytes.

    Returns:
        Strings, null where the uuid is.
    """
    raw = np.frombuffer(array.buffers()[1], np.uint8)[array.offset * NUM_BYTES :][: len(array) * NUM_BYTES]
    text = np.empty((len(array), _NUM_CHARACTERS), np.uint8)
    text[:, _DASHES] = ord("-")
    digits = np.stack([raw >> 4, raw & 15], axis=1).reshape(len(array), 2 * NUM_BYTES)
    text[:, _DIGITS] = _TEXT[digits]
    offsets = np.arange(len(array) + 1, dtype=np.int32) * _NUM_CHARACTERS
    valid = None if not array.null_count else pa.array(np.asarray(array.is_valid())).buffers()[1]
    return pa.StringArray.from_buffers(len(array), pa.py_buffer(offsets), pa.py_buffer(text), valid, array.null_count)


def parse_uuids(array: pa.Array, column: str) -> pa.Array:
    """Text as uuids.

    Args:
        array: Strings.
        column: Name for the error message.

    Returns:
        Fixed-size binary of 16 bytes.

    Raises:
        InvalidInputError: A text is no uuid.
    """
    valid = np.asarray(array.is_valid())
    there = array.drop_null().cast(pa.binary())
    try:
        fixed = there.cast(pa.binary(_NUM_CHARACTERS))
    except pa.ArrowInvalid as error:
        raise _no_uuid(array, column) from error
    start = fixed.offset * _NUM_CHARACTERS
    text = np.frombuffer(fixed.buffers()[1], np.uint8)[start:][: len(fixed) * _NUM_CHARACTERS].reshape(
        len(fixed), _NUM_CHARACTERS
    )
    digits = _VALUES[text[:, _DIGITS]]
    if (text[:, _DASHES] != ord("-")).any() or (digits == _NONE).any():
        raise _no_uuid(array, column)
    values = np.zeros((len(array), NUM_BYTES), np.uint8)
    values[valid] = digits[:, ::2] << 4 | digits[:, 1::2]
    bitmap = None if valid.all() else pa.array(valid).buffers()[1]
    return pa.Array.from_buffers(pa.binary(NUM_BYTES), len(array), [bitmap, pa.py_buffer(values)])


def _no_uuid(array: pa.Array, column: str) -> InvalidInputError:
    def is_uuid(text: str) -> bool:
        return len(text) == _NUM_CHARACTERS and all(
            text[i] == "-" if i in _DASHES else text[i] in "0123456789abcdefABCDEF" for i in range(_NUM_CHARACTERS)
        )

    wrong = next((text for text in array.drop_null().to_pylist() if not is_uuid(text)), "")
    return InvalidInputError(f"Column {column!r} holds {wrong[:50]!r}, which is no uuid.")
