"""Chunks of strings, as pages of any writer may divide them."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from lance_core.encoding.codecs import variable
from lance_core.encoding.values import Chunks, VariableValues
from lance_core.errors import CorruptDataError
from lance_core.format.file.encodings import Variable

DIVISIONS = {
    "even": [8] * 12,
    "two pages": [8] * 9 + [3] + [8] * 9 + [5],
    "all different": list(range(40)),
    "nothing in some": [0, 4, 4, 0, 0, 2],
    "one": [7],
}
KINDS = [(bits, division) for bits in (32, 64) for division in DIVISIONS]


def words(total):
    return [b"x" * (number % 11) + str(number).encode() for number in range(total)]


def divided(bits, counts, gap=0):
    """Values and their chunks, with so many bytes between two of them."""
    values = words(sum(counts))
    dtype = np.dtype(f"<u{bits // 8}")
    pieces, starts, sizes, at = [], [], [], 0
    for low, high in pairwise(np.append(0, np.cumsum(counts)).tolist()):
        some = values[low:high]
        head = (len(some) + 1) * dtype.itemsize
        offsets = head + np.append(0, np.cumsum([len(one) for one in some])).astype(dtype)
        piece = offsets.astype(dtype).tobytes() + b"".join(some)
        pieces.append(piece + b"?" * gap)
        starts.append(at)
        sizes.append(len(piece))
        at += len(pieces[-1])
    memory = np.frombuffer(b"".join(pieces), np.uint8)
    numbers = {"starts": np.array([starts]), "sizes": np.array([sizes]), "counts": np.array(counts)}
    return values, Chunks(buffers=(memory,), **numbers)


def as_list(values: VariableValues):
    return [values.data[low:high].tobytes() for low, high in pairwise(values.offsets.tolist())]


@pytest.mark.parametrize(("bits", "division"), KINDS)
@pytest.mark.parametrize("gap", [0, 3])
def test_chunks_of_any_number_of_values(bits, division, gap):
    values, chunks = divided(bits, DIVISIONS[division], gap)
    found = variable.decode(Variable(bits), chunks)
    assert as_list(found) == values
    assert found.offsets.dtype.itemsize * 8 == bits
    for positions in (np.arange(len(values)), np.arange(0, len(values), 3), np.array([len(values) - 1])):
        some = variable.decode_some(Variable(bits), chunks, positions)
        assert as_list(some) == [values[at] for at in positions.tolist()]
        assert some.offsets.dtype == found.offsets.dtype


def test_chunks_in_another_order_are_left_to_others():
    values, chunks = divided(32, DIVISIONS["even"])
    turned = replace(chunks, starts=chunks.starts[:, ::-1], sizes=chunks.sizes[:, ::-1])
    assert variable.decode_some(Variable(32), turned, np.array([0])) is None
    found = as_list(variable.decode(Variable(32), turned))
    assert found[:8] == values[-8:]
    assert sorted(found) == sorted(values)


@pytest.mark.parametrize(("bits", "division"), KINDS)
def test_no_offset_may_go_back(bits, division):
    counts = DIVISIONS[division]
    _, chunks = divided(bits, counts)
    at = int(np.argmax(counts))
    memory = chunks.buffers[0].copy()
    inside = int(chunks.starts[0, at]) + bits // 8 * (counts[at] // 2)
    memory[inside : inside + bits // 8] = 0xFF
    damaged = replace(chunks, buffers=(memory,))
    with pytest.raises(CorruptDataError, match="offsets go back"):
        variable.decode(Variable(bits), damaged)
    with pytest.raises(CorruptDataError, match="offsets go back"):
        variable.decode_some(Variable(bits), damaged, np.array([0]))
