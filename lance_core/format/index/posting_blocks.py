"""Postings of a word in blocks: which documents have it how often, and where.

A full block has 128 documents:

    float32     largest score of the block
    uint32      first document
    uint8       bits of a packed number
    ...         128 packed distances of each document from the one before; the first is 0
    uint8, ...  bits, and 128 packed frequencies

128 packed numbers lie in four lanes: number ``4 * i + l`` is the i-th of lane l, each lane has its 32 numbers in
``bits`` words of 32 bits, lowest bits first, and word w of all lanes lie side by side.

The last block, if it is not full, has the score and then variable-length integers, 7 bits a byte, lowest first: the
first document, distances, frequencies.

Positions of a word are one byte string, cut where blocks begin: positions of all documents of a block in order, each
document's as distances that start anew; groups of 128 of them packed as above, the rest as variable-length integers.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from lance_core.errors import CorruptDataError

if TYPE_CHECKING:
    from collections.abc import Iterator

UInt8s: TypeAlias = npt.NDArray[np.uint8]
UInt32s: TypeAlias = npt.NDArray[np.uint32]
Int64s: TypeAlias = npt.NDArray[np.int64]
_T = TypeVar("_T", bound=np.generic)

BLOCK = 128
_LANES = 4
_LANE_NUMBERS = BLOCK // _LANES
_WORD_BITS = 32
_SCORE_BYTES, _FIRST_BYTES = 4, 4
_MOST_VARINT_BYTES = 5
_MANY_GROUPS = 1 << 8


# ------------------------------------------------------------------------------------------------------------- packing


def unpack(packed: UInt8s, bits: int) -> UInt32s:
    """Decode groups of 128 packed numbers.

    Args:
        packed: Shape (groups, 16 * bits).
        bits: Bits of a number.

    Returns:
        Shape (128, groups): number i of all groups side by side, so that each step here and in callers runs over
        contiguous memory.
    """
    numbers = np.zeros((_LANE_NUMBERS, _LANES, len(packed)), np.uint32)
    if bits:
        packed_words = np.ascontiguousarray(packed.view("<u4").T).reshape(bits, _LANES, len(packed))
        mask = np.uint32((1 << bits) - 1)
        for number in range(_LANE_NUMBERS):
            word, shift = divmod(number * bits, _WORD_BITS)
            value = np.right_shift(packed_words[word], np.uint32(shift), out=numbers[number])
            if shift + bits > _WORD_BITS:
                value |= packed_words[word + 1] << np.uint32(_WORD_BITS - shift)
            value &= mask
    return numbers.reshape(BLOCK, len(packed))


def pack(numbers: UInt32s, bits: int) -> UInt8s:
    """Encode groups of 128 numbers; the opposite of `unpack`.

    Args:
        numbers: Shape (groups, 128), below ``2 ** bits``.
        bits: Bits of a number.
    """
    lanes = numbers.reshape(len(numbers), _LANE_NUMBERS, _LANES)
    packed_words = np.zeros((len(numbers), bits, _LANES), np.uint32)
    for number in range(_LANE_NUMBERS if bits else 0):
        word, shift = divmod(number * bits, _WORD_BITS)
        packed_words[:, word] |= lanes[:, number] << np.uint32(shift)
        if shift + bits > _WORD_BITS:
            packed_words[:, word + 1] |= lanes[:, number] >> np.uint32(_WORD_BITS - shift)
    return packed_words.astype("<u4").view(np.uint8).reshape(len(numbers), bits * _LANES * 4)


def bits_of(numbers: UInt32s) -> npt.NDArray[np.uint8]:
    """Return the bits that the largest number of each group needs; shape (groups,)."""
    largest = numbers.max(axis=1, initial=0).astype(np.float64)
    return np.frexp(largest)[1].astype(np.uint8)


def varints(data: UInt8s, *, path: str) -> UInt32s:
    """Decode variable-length integers.

    Raises:
        CorruptDataError: The last one is cut, or one is too long.
    """
    is_last = data < 128
    if is_last.all():
        return data.astype(np.uint32)
    ends = np.flatnonzero(is_last)
    if len(data) and not is_last[-1]:
        raise CorruptDataError("a posting of an index ends inside of a number", path=path)
    starts = np.concatenate([[0], ends[:-1] + 1]) if len(ends) else np.empty(0, np.int64)
    slot = np.arange(len(data)) - np.repeat(starts, ends - starts + 1)
    if len(slot) and slot.max() >= _MOST_VARINT_BYTES:
        raise CorruptDataError("a posting of an index has a number of more than 32 bits", path=path)
    parts = (data & 127).astype(np.uint64) << (7 * slot).astype(np.uint64)
    return np.add.reduceat(parts, starts).astype(np.uint32) if len(starts) else np.empty(0, np.uint32)


def encode_varints(numbers: UInt32s) -> tuple[UInt8s, Int64s]:
    """Encode variable-length integers; returns the bytes and the length of each."""
    values = numbers.astype(np.uint64)
    lengths = np.ones(len(values), np.int64)
    for length in range(1, _MOST_VARINT_BYTES):
        lengths += values >= (1 << 7 * length)
    owners = np.repeat(np.arange(len(values)), lengths)
    slot = np.arange(len(owners)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    data = (values[owners] >> (7 * slot).astype(np.uint64) & np.uint64(127)).astype(np.uint8)
    data[slot < lengths[owners] - 1] |= 128
    return data, lengths


# ------------------------------------------------------------------------------------------------------------- reading


def decode_postings(data: UInt8s, starts: Int64s, lengths: Int64s, *, path: str) -> tuple[Int64s, UInt32s]:
    """Decode the blocks of words.

    Args:
        data: The blocks, one behind the other, word after word.
        starts: Shape (blocks + 1,), where each begins in ``data``, and the end of the last.
        lengths: Shape (words,), number of documents of each word.
        path: The file, for errors.

    Returns:
        Documents, ascending in each word, and how often each has the word.

    Raises:
        CorruptDataError: The blocks are damaged.
    """
    full, rest = np.divmod(lengths, BLOCK)
    blocks = full + (rest > 0)
    if len(starts) - 1 != blocks.sum():
        raise CorruptDataError("the words of an index have another number of blocks than documents", path=path)
    ends = np.cumsum(lengths)
    documents, frequencies = np.empty(int(lengths.sum()), np.int64), np.empty(int(lengths.sum()), np.uint32)
    last = np.cumsum(blocks) - 1
    is_tail = np.zeros(int(blocks.sum()), np.bool_)
    is_tail[last[rest > 0]] = True
    owners = np.repeat(np.arange(len(lengths)), blocks)
    slots = np.arange(len(owners)) - np.repeat(last + 1 - blocks, blocks)
    targets = (ends - lengths)[owners] + slots * BLOCK
    if not is_tail.all():
        is_full = ~is_tail
        target = _windows(documents, BLOCK), _windows(frequencies, BLOCK), targets[is_full]
        _decode_full(data, starts[:-1][is_full], starts[1:][is_full], target, path=path)
    if is_tail.any():
        sizes = rest[rest > 0]
        rows = np.repeat(targets[is_tail] - (np.cumsum(sizes) - sizes), sizes) + np.arange(int(sizes.sum()))
        documents[rows], frequencies[rows] = _decode_tails(
            data, starts[:-1][is_tail], starts[1:][is_tail], sizes, path=path
        )
    is_first = np.zeros(len(documents), np.bool_)
    is_first[(ends - lengths)[lengths > 0]] = True
    if (documents[1:] <= documents[:-1])[~is_first[1:]].any():
        raise CorruptDataError("the documents of a word are not in order", path=path)
    return documents, frequencies


def _decode_full(
    data: UInt8s, begins: Int64s, ends: Int64s, target: tuple[Int64s, UInt32s, Int64s], *, path: str
) -> None:
    """Decode full blocks into arrays.

    Args:
        data: The blocks.
        begins: Shape (blocks,), where each begins.
        ends: Shape (blocks,), where each ends.
        target: `_windows` of documents and of frequencies, and the place there of each block.
        path: The file, for errors.
    """
    documents, frequencies, slots = target
    at = begins + _SCORE_BYTES + _FIRST_BYTES
    bits, middle = _group_bounds(data, at, ends, path=path)
    firsts = _windows(data, _FIRST_BYTES)[begins + _SCORE_BYTES].view("<u4").reshape(-1)
    for chosen, deltas in _unpacked(data, at, bits):
        deltas[0] = firsts[chosen]  # of no distance
        documents[slots[chosen]] = _running_sums(deltas).T
    bits, behind = _group_bounds(data, middle, ends, path=path)
    if (behind != ends).any():
        raise CorruptDataError("a block of postings has another length", path=path)
    for chosen, numbers in _unpacked(data, middle, bits):
        frequencies[slots[chosen]] = numbers.T


def _decode_tails(data: UInt8s, begins: Int64s, ends: Int64s, sizes: Int64s, *, path: str) -> tuple[Int64s, UInt32s]:
    """Decode last blocks of fewer than 128 documents."""
    lengths = ends - begins - _SCORE_BYTES
    if (lengths <= 0).any():
        raise CorruptDataError("a block of postings is cut", path=path)
    numbers = varints(data[_ranges(begins + _SCORE_BYTES, lengths)], path=path)
    if len(numbers) != 2 * sizes.sum():
        raise CorruptDataError("the last block of a word has another length", path=path)
    owners = np.repeat(np.arange(len(sizes)), sizes)
    firsts = np.cumsum(sizes) - sizes
    slots = np.arange(len(owners)) + firsts[owners]  # a block's frequencies follow its documents
    running_sums = np.cumsum(numbers[slots], dtype=np.int64)
    before = np.where(firsts > 0, running_sums[firsts - 1], 0)
    return running_sums - before[owners], numbers[slots + sizes[owners]]


def _ranges(starts: Int64s, lengths: Int64s) -> Int64s:
    """Return the numbers of ranges, one behind the other."""
    numbers = np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)
    numbers += np.arange(len(numbers))
    return numbers


def _running_sums(numbers: UInt32s) -> UInt32s:
    """Add up each column, in place; shape (128, groups)."""
    if numbers.shape[1] < _MANY_GROUPS:
        return np.cumsum(numbers, axis=0, out=numbers)
    for before, row in pairwise(numbers):  # of many groups, an eighth of the time of cumsum
        np.add(row, before, out=row)
    return numbers


def _group_bounds(data: UInt8s, at: Int64s, ends: Int64s, *, path: str) -> tuple[Int64s, Int64s]:
    """Return the bits of a number in the packed group at each place, and where the group ends."""
    if (at >= ends).any():
        raise CorruptDataError("a block of postings is cut", path=path)
    bits = data[at].astype(np.int64)
    behind = at + 1 + bits * (BLOCK // 8)
    if (behind > ends).any() or (bits > _WORD_BITS).any():
        raise CorruptDataError("a block of postings is cut", path=path)
    return bits, behind


def _unpacked(data: UInt8s, at: Int64s, bits: Int64s) -> Iterator[tuple[Int64s, UInt32s]]:
    """Decode the packed group at each place; returns places of groups of equal bits, and their numbers as `unpack`."""
    for width in np.unique(bits).tolist():
        chosen = np.flatnonzero(bits == width)
        yield chosen, unpack(_windows(data, width * (BLOCK // 8))[at[chosen] + 1], width)


def _windows(array: npt.NDArray[_T], length: int) -> npt.NDArray[_T]:
    """Return a view, shape (places, length), of the items at each place: rows of it are copied as a whole."""
    return as_strided(array, (max(len(array) - length + 1, 0), length), array.strides * 2)


def decode_positions(data: UInt8s, starts: Int64s, frequencies: UInt32s, counts: Int64s, *, path: str) -> Int64s:
    """Decode positions of words.

    Args:
        data: Positions of some blocks.
        starts: Shape (blocks + 1,), where those of each block begin, and the end.
        frequencies: How often each document of the blocks has the word.
        counts: Shape (blocks,), documents of each block.
        path: The file, for errors.

    Returns:
        Positions, document after document.

    Raises:
        CorruptDataError: They are damaged.
    """
    if not len(counts):
        return np.empty(0, np.int64)
    ends = np.cumsum(counts)
    running_sums = np.concatenate([[0], np.cumsum(frequencies, dtype=np.int64)])
    sizes = running_sums[ends] - running_sums[ends - counts]  # positions of each block
    deltas = np.empty(int(sizes.sum()), np.int64)
    targets = np.cumsum(sizes) - sizes
    behind = _decode_groups(data, starts, sizes, (_windows(deltas, BLOCK), targets), path=path)
    rest = sizes % BLOCK
    short = _decode_short(data, behind, starts[1:], rest, path=path)
    firsts = np.cumsum(rest) - rest
    deltas[np.repeat(targets + sizes - rest - firsts, rest) + np.arange(len(short))] = short
    totals = np.concatenate([[0], np.cumsum(deltas)])
    before = totals[running_sums[:-1]]
    return totals[1:] - np.repeat(before, frequencies)


def decode_positions_of(data: UInt8s, starts: Int64s, frequencies: UInt32s, chosen: Int64s, *, path: str) -> Int64s:
    """Decode positions of a word in some of its documents.

    Args:
        data: Positions of the word.
        starts: Shape (blocks + 1,), where those of each block begin, ascending, and the end.
        frequencies: How often each of its documents has the word.
        chosen: Shape (n,), numbers of documents among these, ascending, without repeats.
        path: The file, for errors.

    Returns:
        Positions, document after document.

    Raises:
        CorruptDataError: They are damaged, or of fewer documents.
    """
    if not len(chosen):
        return np.empty(0, np.int64)
    of_each = chosen // BLOCK
    if of_each[-1] >= len(starts) - 1:
        raise CorruptDataError("a full-text index has positions of other documents", path=path)
    is_new = np.diff(of_each, prepend=-1) != 0
    blocks, block_of = of_each[is_new], np.cumsum(is_new) - 1
    documents = blocks[:, None] * BLOCK + np.arange(BLOCK)
    counts = np.where(documents < len(frequencies), frequencies.take(documents, mode="clip"), 0)
    behind_each = np.cumsum(counts, axis=1, dtype=np.int64)
    # Slots are numbers of positions among those of their block: a document has as many as its frequency.
    wanted = frequencies[chosen].astype(np.int64)
    bounds = np.append(0, np.cumsum(wanted))
    slots = np.repeat(behind_each[block_of, chosen % BLOCK] - bounds[1:], wanted) + np.arange(bounds[-1])
    deltas = _pick_deltas(data, starts, blocks, behind_each[:, -1], (np.repeat(block_of, wanted), slots), path=path)
    totals = np.append(0, np.cumsum(deltas))
    return totals[1:] - np.repeat(totals[bounds[:-1]], wanted)


def _pick_deltas(
    data: UInt8s, starts: Int64s, blocks: Int64s, sizes: Int64s, wanted: tuple[Int64s, Int64s], *, path: str
) -> Int64s:
    """Decode some numbers of blocks of positions.

    Args:
        data: All blocks.
        starts: Shape (blocks + 1,), where each begins, and the end.
        blocks: Blocks that are looked at.
        sizes: Positions of each of these.
        wanted: For each number, which of these blocks has it, and its slot there.
        path: The file, for errors.
    """
    owners, slots = wanted
    behind, ends, groups = starts[blocks], starts[blocks + 1], sizes // BLOCK
    before = np.cumsum(groups) - groups
    group_at, group_bits = np.empty(int(groups.sum()), np.int64), np.empty(int(groups.sum()), np.int64)
    for group in range(int(groups.max(initial=0))):
        here = np.flatnonzero(groups > group)
        numbers = before[here] + group
        group_at[numbers] = behind[here]
        group_bits[numbers], behind[here] = _group_bounds(data, behind[here], ends[here], path=path)
    short = _decode_short(data, behind, ends, sizes % BLOCK, path=path)
    is_packed = slots < (groups * BLOCK)[owners]
    deltas = np.empty(len(slots), np.int64)
    group, slot = np.divmod(slots[is_packed], BLOCK)
    group += before[owners[is_packed]]
    deltas[is_packed] = _pick_packed(data, group_at[group] + 1, group_bits[group], slot)
    rest = sizes % BLOCK
    shift = np.cumsum(rest) - rest - groups * BLOCK
    deltas[~is_packed] = short[(slots + shift[owners])[~is_packed]]
    return deltas


def _pick_packed(data: UInt8s, at: Int64s, bits: Int64s, slots: Int64s) -> Int64s:
    """Decode one number of each of some packed groups of 128; groups of no bits have no bytes."""
    numbers = np.zeros(len(slots), np.int64)
    filled = np.flatnonzero(bits)
    at, bits, slots = at[filled], bits[filled], slots[filled]
    word, shift = np.divmod(slots // _LANES * bits, _WORD_BITS)
    low_at = at + (word * _LANES + slots % _LANES) * 4
    high_at = low_at + np.where(
        shift + bits > _WORD_BITS, 4 * _LANES, 0
    )  # a number may reach into its lane's next word
    at_each = _windows(data, 4)
    low, high = (at_each[offsets].view("<u4").reshape(-1).astype(np.uint64) for offsets in (low_at, high_at))
    values = (high << np.uint64(_WORD_BITS) | low) >> shift.astype(np.uint64)
    numbers[filled] = values & (np.uint64(1) << bits.astype(np.uint64)) - np.uint64(1)
    return numbers


def _decode_short(data: UInt8s, begins: Int64s, ends: Int64s, counts: Int64s, *, path: str) -> UInt32s:
    """Decode the positions of blocks that do not fill a group; counts are those of each block."""
    lengths = ends - begins
    tails = data[_ranges(begins, lengths)]
    bounds = np.append(0, np.cumsum(lengths))
    if (np.diff(np.append(0, np.cumsum(tails < 128))[bounds]) != counts).any():
        raise CorruptDataError("the positions of a word have another length than its frequencies", path=path)
    return varints(tails, path=path)


def _decode_groups(data: UInt8s, starts: Int64s, sizes: Int64s, target: tuple[Int64s, Int64s], *, path: str) -> Int64s:
    """Decode the packed groups of blocks of positions into an array: the first of all blocks, then the second, ...

    Args:
        data: The blocks.
        starts: Shape (blocks + 1,), where each begins, and the end.
        sizes: Shape (blocks,), positions of each.
        target: `_windows` of the array, and the place there of each block.
        path: The file, for errors.

    Returns:
        Where the groups of each block end.
    """
    numbers_at, targets = target
    behind, groups = starts[:-1].copy(), sizes // BLOCK
    for group in range(int(groups.max(initial=0))):
        blocks = np.flatnonzero(groups > group)
        at = behind[blocks]
        bits, behind[blocks] = _group_bounds(data, at, starts[blocks + 1], path=path)
        slots = targets[blocks] + group * BLOCK
        for chosen, numbers in _unpacked(data, at, bits):
            numbers_at[slots[chosen]] = numbers.T
    return behind


# ------------------------------------------------------------------------------------------------------------- writing


def encode_postings(documents: Int64s, frequencies: UInt32s, lengths: Int64s, score: bytes) -> tuple[UInt8s, Int64s]:
    """Encode the blocks of words, word after word; the opposite of `decode_postings`.

    Args:
        documents: Documents, ascending in each word.
        frequencies: How often each has the word.
        lengths: Shape (words,), number of documents of each word.
        score: Largest score of all blocks, four bytes.

    Returns:
        The bytes of all blocks, and the length of each.
    """
    full, rest = np.divmod(lengths, BLOCK)
    counts = full + (rest > 0)
    is_tail = np.zeros(int(counts.sum()), np.bool_)
    is_tail[np.cumsum(counts)[rest > 0] - 1] = True
    begins = np.cumsum(lengths) - lengths
    rows = _group_rows(begins, full)
    blocks, numbers = documents[rows], frequencies[rows]
    distances = np.diff(blocks, axis=1, prepend=blocks[:, :1]).astype(np.uint32)
    distance_bits, number_bits = bits_of(distances), bits_of(numbers)
    first_group = _SCORE_BYTES + _FIRST_BYTES
    tail_begins, tail_sizes = (begins + full * BLOCK)[rest > 0], rest[rest > 0]
    firsts = np.cumsum(tail_sizes) - tail_sizes
    rows = _ranges(tail_begins, tail_sizes)
    deltas = documents[rows]
    deltas[1:] -= documents[rows][:-1]
    deltas[firsts] = documents[tail_begins]
    tails = [_varint_groups(array.astype(np.uint32), firsts) for array in (deltas, frequencies[rows])]

    sizes = np.empty(len(is_tail), np.int64)
    sizes[~is_tail] = first_group + _group_bytes(distance_bits) + _group_bytes(number_bits)
    sizes[is_tail] = _SCORE_BYTES + sum(lengths for _, lengths in tails)
    at = np.cumsum(sizes) - sizes
    data = np.empty(int(sizes.sum()), np.uint8)
    _windows(data, _SCORE_BYTES)[at] = np.frombuffer(score, np.uint8)
    whole = at[~is_tail]
    _windows(data, _FIRST_BYTES)[whole + _SCORE_BYTES] = blocks[:, :1].astype("<u4").view(np.uint8)
    _put_groups(data, whole + first_group, distances, distance_bits)
    _put_groups(data, whole + first_group + _group_bytes(distance_bits), numbers, number_bits)
    behind = at[is_tail] + _SCORE_BYTES
    for encoded, lengths_of_tails in tails:
        data[_ranges(behind, lengths_of_tails)] = encoded
        behind += lengths_of_tails
    return data, sizes


def encode_positions(positions: Int64s, frequencies: UInt32s, counts: Int64s) -> tuple[UInt8s, Int64s]:
    """Encode the positions of blocks; the opposite of `decode_positions`.

    Args:
        positions: Positions, document after document.
        frequencies: How often each document of the blocks has the word.
        counts: Shape (blocks,), documents of each block.

    Returns:
        The bytes of all blocks, and the length of each.
    """
    begins = np.concatenate([[0], np.cumsum(frequencies, dtype=np.int64)])
    deltas = positions.copy()
    deltas[1:] -= positions[:-1]
    deltas[begins[:-1]] = positions[begins[:-1]]
    numbers = deltas.astype(np.uint32)
    cuts = begins[np.concatenate([[0], np.cumsum(counts)])]
    groups, rest = np.divmod(np.diff(cuts), BLOCK)
    packed = numbers[_group_rows(cuts[:-1], groups)]
    bits = bits_of(packed)
    ends = np.concatenate([[0], np.cumsum(_group_bytes(bits))])
    bounds = np.concatenate([[0], np.cumsum(groups)])
    group_sizes = np.diff(ends[bounds])
    tails, tail_sizes = _varint_groups(numbers[_ranges(cuts[:-1] + groups * BLOCK, rest)], np.cumsum(rest) - rest)

    sizes = group_sizes + tail_sizes
    at = np.cumsum(sizes) - sizes
    data = np.empty(int(sizes.sum()), np.uint8)
    _put_groups(data, ends[:-1] + np.repeat(at - ends[bounds[:-1]], groups), packed, bits)
    data[_ranges(at + group_sizes, tail_sizes)] = tails
    return data, sizes


def _group_rows(begins: Int64s, groups: Int64s) -> Int64s:
    """Return the places of numbers that are packed together, of ranges that begin with some groups of them.

    Args:
        begins: Shape (ranges,), where each begins.
        groups: Shape (ranges,), groups of 128 numbers of each.

    Returns:
        Shape (groups, 128).
    """
    slots = _ranges(np.zeros(len(groups), np.int64), groups)
    return (np.repeat(begins, groups) + slots * BLOCK)[:, None] + np.arange(BLOCK)


def _group_bytes(bits: npt.NDArray[np.uint8]) -> Int64s:
    """Return how many bytes groups of 128 numbers take."""
    return 1 + bits.astype(np.int64) * (BLOCK // 8)


def _put_groups(data: UInt8s, at: Int64s, numbers: UInt32s, bits: npt.NDArray[np.uint8]) -> None:
    """Write groups of 128 numbers, each as its bits and the packed numbers.

    Args:
        data: Where they are written.
        at: Shape (groups,), the place of each.
        numbers: Shape (groups, 128).
        bits: Shape (groups,), bits of a number.
    """
    data[at] = bits
    for width in np.unique(bits).tolist():
        chosen = np.flatnonzero(bits == width)
        _windows(data, width * (BLOCK // 8))[at[chosen] + 1] = pack(numbers[chosen], width)


def _varint_groups(numbers: UInt32s, firsts: Int64s) -> tuple[UInt8s, Int64s]:
    """Encode numbers; returns the bytes, and how many of them each group has, whose first numbers are given."""
    data, sizes = encode_varints(numbers)
    ends = np.concatenate([[0], np.cumsum(sizes)])
    return data, np.diff(ends[np.append(firsts, len(numbers))])
