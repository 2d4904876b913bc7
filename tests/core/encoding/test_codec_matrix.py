"""Each codec x Arrow type x nulls x number of rows, through whole tables: what is written uses it, and reads back."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lance_core
from lance_core.encoding import registry
from lance_core.format.file import encodings
from lance_core.reports.describe import describe

RNG = np.random.default_rng(12)
SIZES = [1, 3, 1500, 9000]
N = SIZES[-1]


def arrays(numbers, *kinds):
    """Numbers as arrays of some types."""
    return [pa.array(numbers).cast(kind, safe=False) for kind in kinds]


def vectors(*kinds):
    return [pa.FixedSizeListArray.from_arrays(array, 3) for array in arrays(RNG.integers(0, 2, 3 * N), *kinds)]


def structs(*names):
    children = {"number": SMALL[0], "float": FLOATS[0], "text": TEXTS[0]}
    return [pa.StructArray.from_arrays([children[name] for name in names], names)]


FLOATS = arrays(RNG.standard_normal(N), pa.float64(), pa.float32())
CURVES = arrays(np.arange(N) / 4 + 1e6, pa.float64(), pa.float32())
SMALL = arrays(RNG.integers(0, 7, N), pa.int64(), pa.int32(), pa.int16(), pa.uint8(), pa.time64("us"), pa.float64())
RUNS = arrays(np.repeat(RNG.integers(0, 99, N // 100), 100), pa.int64(), pa.int32(), pa.int16(), pa.uint8())
TEXTS = arrays([f"{row * 7919 % 10_007} of some" for row in range(N)], pa.string(), pa.large_string(), pa.binary())
WIDE = [*arrays(RNG.integers(0, 1 << 60, N), pa.decimal128(30, 2)), pa.array(RNG.random(N) < 0.5)]
PACKED = {"packed": "true"}

# For each codec the field metadata that makes the writer use it, and data to use it on.
ROWS = {
    "Flat": ({"compression": "none"}, [*FLOATS, *SMALL, *WIDE]),
    "InlineBitpacking": ({}, SMALL[:3]),
    "OutOfLineBitpacking": ({"compression": "none"}, FLOATS),  # definition levels
    "Rle": ({}, RUNS),
    "ByteStreamSplit": ({"compression": "lz4", "bss": "on"}, CURVES),
    "Variable": ({"compression": "none"}, TEXTS),
    "Fsst": ({"compression": "fsst"}, TEXTS),
    "General": ({"compression": "zstd"}, [*TEXTS, *CURVES]),
    "FixedSizeList": ({}, vectors(pa.float32(), pa.int8(), pa.bool_())),
    "PackedStruct": (PACKED, structs("number", "float")),
    "VariablePackedStruct": (PACKED, structs("number", "text")),
}
BY_HAND = {"Constant", "Range", "Delta", "Dictionary", "BlockRle", "PackedVariable"}
"""Codecs of file version 2.3, which is read, not written: `test_sequences.py` decodes bytes made by hand."""


def test_every_codec_has_a_row():
    assert {kind.__name__ for kind in registry.CODECS} == {*ROWS} | BY_HAND
    assert {kind.__name__ for kind in encodings.Encoding.__subclasses__()} >= {*ROWS} | BY_HAND


@pytest.mark.slow
@pytest.mark.parametrize("has_nulls", [False, True])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ROWS)
def test_what_is_written_reads_back(tmp_path, name, size, has_nulls):
    asked, columns = ROWS[name]
    metadata = {f"lance-encoding:{key}": value for key, value in asked.items()}
    mask = pa.array(RNG.random(size) < 0.3) if has_nulls else None
    columns = [array.slice(0, size) for array in columns]
    if mask is not None:
        columns = [pc.if_else(mask, None, array) for array in columns]
    fields = [pa.field(f"c{number}", array.type, metadata=metadata) for number, array in enumerate(columns)]
    table = pa.table(columns, schema=pa.schema(fields))
    dataset = lance_core.write_dataset(table, tmp_path)
    if size == N and (has_nulls or name != "OutOfLineBitpacking"):
        assert describe(tmp_path, measure=False).count(name) >= len(columns)
    assert dataset.to_table().equals(table)
    for rows in ([size - 1], [0, size // 2, size - 1], RNG.permutation(size)[:200].tolist()):
        assert dataset.take(rows).equals(table.take(rows))
    assert dataset.to_table(limit=size // 3, offset=size // 2).equals(table.slice(size // 2, size // 3))
