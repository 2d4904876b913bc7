import itertools
import struct

import numpy as np
import pytest

from lance_core.encoding.layouts import chunk_bytes
from lance_core.encoding.options import PageOptions
from lance_core.encoding.values import Chunks

UNEVEN, EVEN = [5, 16, 1, 8, 3], [6, 6, 6, 6, 2]


def pieces(sizes, gap, first):
    """Chunks of some sizes, with so many bytes between them in their memory."""
    starts = first + np.cumsum([0, *sizes[:-1]]) + gap * np.arange(len(sizes))
    memory = np.random.default_rng(sum(sizes) + gap).integers(0, 256, int(starts[-1]) + sizes[-1] + 4, np.uint8)
    return Chunks(buffers=(memory,), starts=starts[None], sizes=np.array(sizes)[None], counts=np.full(len(sizes), 4))


def slowly(num_levels, sources, widths):
    out = b""
    for at, levels in enumerate(num_levels):
        head, body = struct.pack("<H", levels), b""
        for source, width in zip(sources, widths, strict=True):
            start, size = int(source.starts[0, at]), int(source.sizes[0, at])
            head += size.to_bytes(width, "little")
            part = source.buffers[0][start : start + size].tobytes()
            body += part + b"\xfe" * (-size % 8)
        out += head + b"\xfe" * (-len(head) % 8) + body
    return out


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("num_levels", [0, 1, 2])
@pytest.mark.parametrize("num_chunks", [1, 2, 5])
@pytest.mark.parametrize(("sizes", "gap"), list(itertools.product([EVEN, UNEVEN], [0, 3])))
def test_chunks_are_headers_and_padded_parts(version, num_levels, num_chunks, sizes, gap):
    options = PageOptions(version=version)
    levels = [pieces([2, 9, 2, 4, 7][:num_chunks], 0, 0)] * num_levels
    values = pieces(sizes[:num_chunks], gap, 2)
    bounds = np.arange(num_chunks + 1) * 4
    widths = [2] * num_levels + [2 if version == "2.1" else 4]
    found = chunk_bytes.assemble(bounds, levels, values, options)
    assert found.tobytes() == slowly([4] * num_chunks, [*levels, values], widths)
    assert int(chunk_bytes.chunk_sizes(levels, values, options).sum()) == len(found)
