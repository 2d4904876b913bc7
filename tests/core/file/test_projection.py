"""Fields of nested types are read alone: nothing is fetched for those that are not asked for."""

import numpy as np
import pyarrow as pa
import pytest

N = 20_000
RNG = np.random.default_rng(3)
SMALL = pa.array(RNG.integers(0, 100, N).astype(np.int8))
LARGE = pa.array([b"%030d" % one for one in RNG.integers(0, 10**9, N).tolist()])
STRUCT = pa.StructArray.from_arrays([SMALL, LARGE], ["small", "large"])
NESTED = {
    "struct": (STRUCT, "c.small"),
    "list of struct": (pa.ListArray.from_arrays(np.arange(0, N + 1, 4), STRUCT), "c.item.small"),
    "fixed-size list of struct": (pa.FixedSizeListArray.from_arrays(STRUCT, 4), "c.item.small"),
    "struct of struct": (pa.StructArray.from_arrays([STRUCT, LARGE], ["inner", "other"]), "c.inner.small"),
}


def _fetched(data_file, names):
    reader = data_file.open(counting=True)
    projection = reader.schema if names is None else reader.schema.select(names)
    columns = {leaf.id: index for index, leaf in enumerate(reader.schema.leaves())}
    source = reader._source
    source.calls.clear()
    list(reader.scan(projection, columns, start=0, end=reader.num_rows, batch_size=1 << 20))
    return sum(end - start for call in source.calls for start, end in call)


@pytest.mark.parametrize("name", NESTED)
def test_other_fields_are_not_fetched(data_file, name):
    array, path = NESTED[name]
    data_file.write(pa.table({"c": array}))
    assert _fetched(data_file, [path]) < _fetched(data_file, None) / 4
    whole, part = data_file.read()["c"].to_pylist(), data_file.read(names=[path])["c"].to_pylist()
    assert str(part).count("small") == str(whole).count("small")
    assert "large" not in str(part)


def test_a_packed_struct_is_fetched_as_a_whole(data_file):
    field = pa.field("c", STRUCT.type, metadata={"lance-encoding:packed": "true"})
    data_file.write(pa.table([STRUCT], schema=pa.schema([field])))
    assert [leaf.name for leaf in data_file.open().schema.leaves()] == ["c"]
    assert data_file.read()["c"].to_pylist() == STRUCT.to_pylist()
    assert data_file.take([7, 3])["c"].to_pylist() == [STRUCT[7].as_py(), STRUCT[3].as_py()]
