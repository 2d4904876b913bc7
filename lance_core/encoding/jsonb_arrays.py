"""Many JSONB values at once as JSON text; see `lance_core.encoding.jsonb` for the form, and for one value.

All values are walked together, one level of nesting after the other: first down, to find the elements, then up, for how
long their texts are, then down again, for where they go. What is not quite as it should be is left to the functions for
one value, which know what to say about it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lance_core.common.frozen import mutable
from lance_core.encoding.jsonb import CONSTANTS, MAX_DEPTH, decode_text, float_text
from lance_core.encoding.kernels import aranges, empty, gather_words, starts_of
from lance_core.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from lance_core.encoding.values import Bytes, Int64s

_MOST_ONE_BY_ONE = 16
"""Up to so many values are faster one by one."""
BLOCK_BYTES = 1 << 19
"""Bytes of values that are walked together: enough to spread the cost of a step, few enough for the cache."""

SCALAR, OBJECT, ARRAY = 1, 2, 4
_STRING, _NUMBER, CONTAINER = 1, 2, 5
_ZERO, _SIGNED, _UNSIGNED, _FLOAT = 0x00, 0x40, 0x50, 0x60
_LITERALS = b"nullfalsetrue0NaN-Infinity"
_NULL_TEXT, _ZERO_TEXT = (0, 4), (13, 1)
_CONSTANTS = {0x10: (14, 3), 0x20: (18, 8), 0x30: (17, 9)}
_NO_CONSTANTS = dict.fromkeys(CONSTANTS, _NULL_TEXT)
_LITERAL_OF = {0: _NULL_TEXT, 3: (4, 5), 4: (9, 4)}
_QUOTE, _BACKSLASH, _FIRST_PLAIN = 0x22, 0x5C, 0x20
_MAX_TEXT = 2**31 - 1


class NotPlainError(Exception):
    """Something that the functions for one value must look at."""


def decode_texts(array: pa.Array, *, with_constants: bool = False) -> pa.Array:
    """Decode JSONB to JSON text.

    Args:
        array: Binary or large binary; nulls stay null.
        with_constants: Write numbers that are not finite as `json.loads` reads them; by default as null.

    Returns:
        Array of strings.

    Raises:
        CorruptDataError: Not JSONB.
        UnsupportedError: Types that JSON text cannot express.
        InvalidInputError: More than 2 GiB of text.
    """
    parts: list[pa.Array] = []
    row, mean = 0, max(1, array.nbytes // max(1, len(array)))
    step = max(_MOST_ONE_BY_ONE, BLOCK_BYTES // mean)
    while row < len(array):
        parts.append(_decode_block(array.slice(row, step), with_constants=with_constants))
        row += step
    if sum(len(part.buffers()[2] or b"") for part in parts) > _MAX_TEXT:
        raise InvalidInputError("more than 2 GiB of JSON text in one batch; ask for smaller batches")
    return pa.concat_arrays(parts) if parts else pa.array([], pa.string())


def _decode_block(array: pa.Array, *, with_constants: bool) -> pa.Array:
    if len(array) > _MOST_ONE_BY_ONE:
        try:
            return _decode_together(array, _CONSTANTS if with_constants else _NO_CONSTANTS)
        except NotPlainError:
            pass
    texts = [None if data is None else decode_text(data, with_constants=with_constants) for data in array.to_pylist()]
    return pa.array(texts, pa.string())


def _decode_together(array: pa.Array, constants: Mapping[int, tuple[int, int]]) -> pa.Array:
    memory, starts, sizes, is_valid = values_of(array)
    selection = slice(None) if is_valid is None else np.flatnonzero(is_valid)
    levels = _find_levels(memory, starts[selection], sizes[selection])
    texts = _Texts(memory, constants)
    for level in levels:
        texts.add(level)
    lengths = _measure(levels)
    all_lengths = np.zeros(len(array), np.int64)
    all_lengths[selection] = lengths
    offsets = starts_of(all_lengths)
    if offsets[-1] > _MAX_TEXT:
        raise NotPlainError
    out = empty(int(offsets[-1]), np.uint8)
    _write_texts(levels, offsets[:-1][selection], texts.joined(), out)
    buffers = [to_bitmap(is_valid), pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(out)]
    decoded = pa.Array.from_buffers(pa.string(), len(array), buffers)
    try:
        decoded.validate(full=True)
    except pa.ArrowInvalid as error:  # no UTF-8
        raise NotPlainError from error
    return decoded


def values_of(array: pa.Array) -> tuple[Bytes, Int64s, Int64s, npt.NDArray[np.bool_] | None]:
    """Memory, starts, sizes, and which are valid."""
    _, offset_buffer, data = array.buffers()
    kind = np.int64 if pa.types.is_large_binary(array.type) else np.int32
    offsets = np.frombuffer(offset_buffer, kind)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    low, high = int(offsets[0]), int(offsets[-1])
    memory: Bytes = np.frombuffer(data, np.uint8)[low:high] if data is not None else np.empty(0, np.uint8)
    is_valid = np.asarray(array.is_valid()) if array.null_count else None
    return memory, offsets[:-1] - low, np.diff(offsets), is_valid


def to_bitmap(is_valid: npt.NDArray[np.bool_] | None) -> pa.Buffer | None:
    """Return Arrow's bitmap of what is valid; None if all is."""
    return None if is_valid is None else pa.py_buffer(np.packbits(is_valid, bitorder="little"))


@mutable(kw_only=True)
class Level:
    """All arrays and objects at one depth (and what stands alone), and their elements, in the order of the text.

    Attributes:
        kinds: Shape (n,): what each is.
        firsts: Shape (n + 1,): its first element, and the end.
        owners: Shape (m,): to which of them each element belongs.
        starts: Shape (m,): where an element's data is.
        sizes: Shape (m,): its bytes.
        types: Shape (m,).
        is_key: Shape (m,): it is the key of an object.
        lengths: Shape (m,): bytes of its text.
        sources: Shape (m,): where its text is, without quotes; see `_Texts`.
    """

    kinds: Int64s
    firsts: Int64s
    owners: Int64s
    starts: Int64s
    sizes: Int64s
    types: Int64s
    is_key: npt.NDArray[np.bool_]
    lengths: Int64s
    sources: Int64s


def _find_levels(memory: Bytes, starts: Int64s, sizes: Int64s) -> list[Level]:
    levels: list[Level] = []
    while len(starts):
        if len(levels) > MAX_DEPTH:
            raise NotPlainError
        level = find_level(memory, starts, sizes)
        levels.append(level)
        inner = level.types == CONTAINER
        starts, sizes = level.starts[inner], level.sizes[inner]
    return levels


def find_level(memory: Bytes, starts: Int64s, sizes: Int64s) -> Level:
    """Find the elements of values; raises `NotPlainError`."""
    _must(sizes >= 4)
    headers = gather_words(memory, starts, ">u4").astype(np.int64)
    kinds, counts = headers >> 29, headers & (1 << 29) - 1
    _must((kinds == SCALAR) | (kinds == OBJECT) | (kinds == ARRAY))
    num_entries = np.where(kinds == SCALAR, 1, np.where(kinds == OBJECT, 2 * counts, counts))
    heads = 4 + 4 * num_entries
    _must(heads <= sizes)
    firsts = starts_of(num_entries)
    owners = np.repeat(np.arange(len(starts)), num_entries)
    child_indices = np.arange(firsts[-1]) - firsts[owners]
    entries = gather_words(memory, starts[owners] + 4 + 4 * child_indices, ">u4").astype(np.int64)
    element_sizes, types = entries & (1 << 28) - 1, entries >> 28
    _must(types <= CONTAINER)
    ends = starts_of(element_sizes)
    _must(ends[firsts[1:]] - ends[firsts[:-1]] == sizes - heads)
    element_starts = ends[:-1] + (starts + heads - ends[firsts[:-1]])[owners]
    # In the text each value follows its key.
    is_object = (kinds == OBJECT)[owners]
    is_key = is_object & (child_indices < counts[owners])
    moved = np.where(is_key, child_indices, child_indices - counts[owners]) * 2 + ~is_key
    order = np.empty(len(child_indices), np.int64)
    order[firsts[owners] + np.where(is_object, moved, child_indices)] = np.arange(len(child_indices))
    return Level(
        kinds=kinds,
        firsts=firsts,
        owners=owners,
        starts=element_starts[order],
        sizes=element_sizes[order],
        types=types[order],
        is_key=is_key[order],
        lengths=np.zeros(len(child_indices), np.int64),
        sources=np.zeros(len(child_indices), np.int64),
    )


def _must(holds: npt.NDArray[np.bool_]) -> None:
    if not holds.all():
        raise NotPlainError


class _Texts:
    """The texts of elements that are neither arrays nor objects, in one memory behind that of the values."""

    def __init__(self, memory: Bytes, constants: Mapping[int, tuple[int, int]]) -> None:
        self._memory = memory
        self._constants = constants
        self._parts: list[Bytes] = [memory, np.frombuffer(_LITERALS, np.uint8)]
        self._size = len(memory) + len(_LITERALS)
        special = (memory < _FIRST_PLAIN) | (memory == _QUOTE) | (memory == _BACKSLASH)
        self._specials = starts_of(special)

    def joined(self) -> Bytes:
        """Return the memory that `Level.sources` point to."""
        return np.concatenate(self._parts)

    def add(self, level: Level) -> None:
        """Tell where the texts of a level are."""
        for kind, literal in _LITERAL_OF.items():
            at = np.flatnonzero(level.types == kind)
            _must(level.sizes[at] == 0)
            self._literal(level, at, literal)
        strings = np.flatnonzero(level.types == _STRING)
        starts, ends = level.starts[strings], level.starts[strings] + level.sizes[strings]
        level.sources[strings], level.lengths[strings] = starts, level.sizes[strings]
        escaped = strings[self._specials[ends] > self._specials[starts]]
        if len(escaped):
            self._listed(level, escaped, [self._escape(level, text) for text in escaped.tolist()])
        self._add_numbers(level, np.flatnonzero(level.types == _NUMBER))

    def _escape(self, level: Level, at: int) -> str:
        start, size = int(level.starts[at]), int(level.sizes[at])
        try:
            text = self._memory[start : start + size].tobytes().decode()
        except UnicodeDecodeError as error:
            raise NotPlainError from error
        return json.dumps(text, ensure_ascii=False)[1:-1]

    def _add_numbers(self, level: Level, numbers: Int64s) -> None:
        if not len(numbers):
            return
        _must(level.sizes[numbers] > 0)
        kinds = self._memory[level.starts[numbers]]
        sizes = level.sizes[numbers]
        for kind in np.flatnonzero(np.bincount(kinds)).tolist():
            for size in np.flatnonzero(np.bincount(sizes[kinds == kind])).tolist():
                at = numbers[(kinds == kind) & (sizes == size)]
                self._add_kind(level, at, kind, size - 1)

    def _add_kind(self, level: Level, at: Int64s, kind: int, size: int) -> None:
        if kind == _ZERO or kind in self._constants:
            self._literal(level, at, _ZERO_TEXT if kind == _ZERO else self._constants[kind])
            return
        if kind == _FLOAT and size == 8:
            numbers = gather_words(self._memory, level.starts[at] + 1, ">f8")
            self._listed(level, at, _float_texts(numbers.tolist()))
        elif kind in (_SIGNED, _UNSIGNED) and size in (1, 2, 4, 8):
            code = f"{'i' if kind == _SIGNED else 'u'}{size}"
            numbers = gather_words(self._memory, level.starts[at] + 1, f">{code}")
            self._array(level, at, pa.array(numbers.astype(f"={code}")).cast(pa.string()))
        else:
            raise NotPlainError

    def _literal(self, level: Level, at: Int64s, literal: tuple[int, int]) -> None:
        level.sources[at], level.lengths[at] = len(self._memory) + literal[0], literal[1]

    def _listed(self, level: Level, at: Int64s, texts: list[str]) -> None:
        self._array(level, at, pa.array(texts, pa.string()))

    def _array(self, level: Level, at: Int64s, texts: pa.Array) -> None:
        offsets = np.frombuffer(texts.buffers()[1], np.int32, len(texts) + 1).astype(np.int64)
        level.sources[at], level.lengths[at] = offsets[:-1] + self._size, np.diff(offsets)
        data = np.frombuffer(texts.buffers()[2], np.uint8, int(offsets[-1]))
        self._parts.append(data)
        self._size += len(data)


def _float_texts(values: list[float]) -> list[str]:
    """As `float_text`, which has nothing to add to most of them."""
    texts = map(repr, values)
    # Exponents, "nan" and "inf" have one of these letters.
    return [float_text(float(text)) if "e" in text or "n" in text else text for text in texts]


def _measure(levels: list[Level]) -> Int64s:
    """Fill in the lengths of what holds elements; those of the outermost."""
    whole: Int64s = np.empty(0, np.int64)
    for level in reversed(levels):
        level.lengths[level.types == CONTAINER] = whole
        is_alone = level.kinds == SCALAR
        ends = starts_of(_taken(level))
        inside = ends[level.firsts[1:]] - ends[level.firsts[:-1]]
        # A bracket, then each element with what follows it: a colon, a comma, at last the other bracket.
        whole = inside + ~is_alone + (level.firsts[1:] == level.firsts[:-1])
    return whole


def _taken(level: Level) -> Int64s:
    """Return bytes of each element, with quotes, and with what follows it."""
    return level.lengths + 2 * (level.types == _STRING) + (level.kinds != SCALAR)[level.owners]


def _write_texts(levels: list[Level], positions: Int64s, texts: Bytes, out: Bytes) -> None:
    """Write the texts; ``positions`` are those of the outermost values."""
    for level in levels:
        is_alone, taken = level.kinds == SCALAR, _taken(level)
        ends = starts_of(taken)
        inside = positions + ~is_alone - ends[level.firsts[:-1]]
        at = ends[:-1] + inside[level.owners]
        is_followed = ~is_alone[level.owners]
        out[(at + taken - 1)[is_followed]] = np.where(level.is_key, ord(":"), ord(","))[is_followed]
        is_object = level.kinds == OBJECT
        has_none = level.firsts[1:] == level.firsts[:-1]
        closing = inside + ends[level.firsts[1:]] - 1 + has_none
        some = ~is_alone
        out[positions[some]] = np.where(is_object, ord("{"), ord("["))[some]
        out[closing[some]] = np.where(is_object, ord("}"), ord("]"))[some]
        is_string = level.types == _STRING
        out[at[is_string]] = _QUOTE
        out[at[is_string] + level.lengths[is_string] + 1] = _QUOTE
        is_scalar = level.types != CONTAINER
        lengths = level.lengths[is_scalar]
        out[aranges((at + is_string)[is_scalar], lengths)] = texts[aranges(level.sources[is_scalar], lengths)]
        positions = at[~is_scalar]
