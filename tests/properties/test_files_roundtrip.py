"""Any type, any nulls, any slices, any page bounds: what is written comes back."""

import os

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lance_core.file.read.reader import DataFileReader
from lance_core.file.write import writer as writer_module
from lance_core.file.write.writer import DataFileWriter
from lance_core.format.schema import Schema

IS_DEEP = os.environ.get("LANCE_TESTS") == "deep"

LEAVES = {
    pa.int8(): st.integers(-128, 127),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.int64(): st.one_of(st.integers(0, 3), st.integers(-(2**63), 2**63 - 1)),
    pa.bool_(): st.booleans(),
    pa.float64(): st.floats(allow_nan=False),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.string(): st.text(max_size=6),
    pa.large_binary(): st.one_of(st.binary(max_size=5), st.binary(min_size=300, max_size=310)),
    pa.binary(3): st.binary(min_size=3, max_size=3),
    pa.null(): st.none(),
    pa.date32(): st.dates(),
}


def _kinds(version):
    dictionaries = st.builds(pa.dictionary, st.sampled_from([pa.int8(), pa.uint16()]), st.just(pa.string()))
    leaves = st.sampled_from(list(LEAVES))
    leaves = st.one_of(leaves, dictionaries)
    vectors = st.builds(pa.list_, st.sampled_from([pa.int64(), pa.float32(), pa.bool_()]), st.sampled_from([1, 3, 64]))
    nested = st.recursive(
        st.one_of(leaves, vectors),
        lambda inner: st.one_of(
            inner.map(pa.list_),
            inner.map(pa.large_list),
            st.lists(inner, min_size=1, max_size=3).map(
                lambda kinds: pa.struct([(f"f{i}", k) for i, k in enumerate(kinds)])
            ),
            *([inner.map(lambda kind: pa.map_(pa.int8(), kind))] if version == "2.2" else []),
        ),
        max_leaves=5,
    )
    if version != "2.2":
        return nested
    fields = st.lists(st.one_of(leaves, vectors), min_size=1, max_size=3)
    structs = fields.map(lambda kinds: pa.struct([(f"f{i}", kind) for i, kind in enumerate(kinds)]))
    lists = st.builds(pa.list_, structs, st.sampled_from([1, 2, 7]))
    lists_of_lists = st.builds(lambda inner, size: pa.list_(pa.struct([("l", inner)]), size), lists, st.just(3))
    return st.one_of(nested, nested, lists, lists_of_lists)


ASKED = {
    "compression": ["none", "lz4", "zstd", "fsst"],
    "bss": ["on", "off"],
    "dict-divisor": ["1", "1000000"],
    "dict-values-compression": ["none", "lz4", "zstd"],
    "rle-threshold": ["0", "1"],
    "structural-encoding": ["miniblock", "fullzip"],
    "minichunk-size": ["1", "100000"],
}


def _asking(draw, field):
    """A field of which all parts ask for some encoding."""
    kind = field.type
    if pa.types.is_list(kind):
        kind = pa.list_(_asking(draw, kind.value_field))
    elif pa.types.is_struct(kind):
        kind = pa.struct([_asking(draw, one) for one in kind])
    keys = draw(st.lists(st.sampled_from(list(ASKED)), max_size=3))
    asked = {f"lance-encoding:{key}": draw(st.sampled_from(ASKED[key])) for key in keys}
    if "fixed_size_list<item: bool>" in str(kind):  # which cannot stand one by one
        asked.pop("lance-encoding:structural-encoding", None)
    return pa.field(field.name, kind, metadata=asked or None)


def _values(kind, version):
    if pa.types.is_fixed_size_list(kind):
        inside = st.lists(_values(kind.value_type, version), min_size=kind.list_size, max_size=kind.list_size)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inside = st.lists(_values(kind.value_type, version), max_size=4)
    elif pa.types.is_map(kind):
        inside = st.dictionaries(st.integers(0, 9), _values(kind.item_type, version), max_size=3).map(
            lambda one: list(one.items())
        )
    elif pa.types.is_struct(kind):
        inside = st.fixed_dictionaries({one.name: _values(one.type, version) for one in kind})
        if version == "2.0":  # which has no null structs
            return inside
    elif pa.types.is_dictionary(kind):
        inside = st.text(max_size=2)
    else:
        inside = LEAVES[kind]
    return st.one_of(st.none(), inside)


@st.composite
def _columns(draw, version):
    """A field and an array for it."""
    field = pa.field("c", draw(_kinds(version)))
    if version != "2.0":
        field = _asking(draw, field)
    few = draw(st.lists(_values(field.type, version), min_size=1, max_size=8))
    # Repeating a few values makes pages of several chunks without slow generation.
    array = pa.array(few * draw(st.sampled_from([1, 1, 7, 700])), field.type)
    start = draw(st.integers(0, len(array) - 1))
    return field, array.slice(start, draw(st.integers(1, len(array) - start)))


class Memory:
    """A file in memory, first written, then read."""

    def __init__(self):
        self.parts = []

    def write(self, data):
        self.parts.append(bytes(data))

    def commit(self):
        self.buffer = pa.py_buffer(b"".join(self.parts))

    @property
    def size(self):
        return self.buffer.size

    def read_ranges(self, ranges):
        return [self.buffer.slice(start, end - start) for start, end in ranges]


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
@settings(max_examples=600 if IS_DEEP else 35, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    page_bytes=st.sampled_from([100, 2000, 8 << 20]),
    batch_rows=st.sampled_from([1 << 20, 100, 3]),
    data=st.data(),
)
def test_what_is_written_comes_back(version, page_bytes, batch_rows, data):
    drawn = data.draw(st.lists(_columns(version), min_size=1, max_size=2))
    length = min(len(array) for _, array in drawn)
    fields = [field.with_name(f"c{at}") for at, (field, _) in enumerate(drawn)]
    table = pa.table([array.slice(0, length) for _, array in drawn], schema=pa.schema(fields))
    memory = Memory()
    before, writer_module.PAGE_BYTES = writer_module.PAGE_BYTES, page_bytes
    try:
        writer = DataFileWriter(memory, Schema.from_arrow(table.schema), version=version)
        for batch in table.to_batches(max_chunksize=max(batch_rows, length // 20 + 1)):
            writer.write(batch)
        written = writer.finish()
    finally:
        writer_module.PAGE_BYTES = before
    reader = DataFileReader(memory, path="memory")
    schema = reader.schema
    columns = dict(zip(written.field_ids, written.column_indices, strict=True))
    start = data.draw(st.integers(0, length - 1))
    end = data.draw(st.integers(start, length))
    for low, high in ((0, length), (start, end)):
        batches = list(reader.scan(schema, columns, start=low, end=high, batch_size=max(batch_rows, length // 20 + 1)))
        got = pa.Table.from_batches(batches, schema=schema.to_arrow())
        got.validate(full=True)
        assert _is_same(got, table.slice(low, high - low))
    rows = data.draw(st.lists(st.integers(0, length - 1), min_size=1, max_size=9))
    got = pa.Table.from_batches([reader.take(schema, columns, np.array(rows))])
    got.validate(full=True)
    assert _is_same(got, table.take(rows))


def _is_same(one, other):
    """Dictionaries may have numbered the same values in another way; floats without NaN compare as Python does."""
    return one.schema == other.schema and one.to_pydict() == other.to_pydict()
