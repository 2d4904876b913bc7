"""Tables of version 2.0 written by us: pylance scans, takes, filters and projects them; both change them."""

import decimal
import itertools

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.fragment import write_fragments

import lance_core
from lance_core.errors import UnsupportedError

N = 400
NULLS = {"none": 0.0, "some": 0.3, "all": 1.1}
RNG = np.random.default_rng(7)
SMALL = RNG.integers(0, 100, N)
TEXTS = [f"row {one} {'x' * (one % 30)}" for one in RNG.integers(0, 10**6, N).tolist()]


def _numbers():
    kinds = [pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64()]
    kinds += [pa.float16(), pa.float32(), pa.float64(), pa.time64("ns"), pa.duration("s"), pa.timestamp("us", "UTC")]
    yield from (pa.array(SMALL.astype(np.float16) if kind == pa.float16() else SMALL).cast(kind) for kind in kinds)
    yield pa.array(SMALL.astype(np.int32)).cast(pa.date32())
    yield pa.array(SMALL < 50)
    numbers = [decimal.Decimal(one) / 100 for one in SMALL.tolist()]
    yield from (pa.array(numbers, kind) for kind in (pa.decimal128(20, 2), pa.decimal256(40, 2)))
    yield pa.array([b"%07d" % one for one in SMALL.tolist()], pa.binary(7))
    yield pa.nulls(N)


def _strings():
    kinds = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
    yield from (pa.array(TEXTS).cast(kind) for kind in kinds)
    yield from (pa.array([f"kind {one % 9}" for one in range(N)]).cast(kind) for kind in kinds)
    yield pa.array([f"kind {one % 255}" for one in range(N)])
    yield pa.array([""] * N)


def _vectors():
    floats = pa.array(RNG.random(N * 6, np.float32))
    yield pa.FixedSizeListArray.from_arrays(floats, 6)
    yield pa.FixedSizeListArray.from_arrays(pa.FixedSizeListArray.from_arrays(floats, 2), 3)
    items = pa.array([None if one % 7 == 0 else one for one in range(N * 3)])
    kinds = (pa.int16(), pa.bool_(), pa.timestamp("us"))
    yield from (pa.FixedSizeListArray.from_arrays(items.cast(kind), 3) for kind in kinds)


def _dictionaries():
    words = pa.array([f"kind {one % 9}" for one in range(N)])
    values = [words, words.cast(pa.large_string()), words.cast(pa.binary()), pa.array(SMALL < 50)]
    values += [pa.array(np.arange(N) % 7), pa.array(RNG.random(N) // 0.1)]
    for one, key in itertools.product(values, (pa.int8(), pa.uint16())):
        yield one.dictionary_encode().cast(pa.dictionary(key, one.type))


def _nested():
    rows = range(N)
    yield pa.array([list(range(one % 4)) for one in rows], pa.list_(pa.int32()))
    yield pa.array([None if i % 5 == 0 else [[text] * (i % 2)] * (i % 3) for i, text in enumerate(TEXTS)])
    yield pa.array([[]] * N, pa.list_(pa.struct([("a", pa.list_(pa.string()))])))
    yield pa.array([[[None, 1.5]] * (i % 3) for i in rows], pa.large_list(pa.list_(pa.float32(), 2)))
    yield pa.array([{"a": i, "b": {"c": text, "l": [i] * (i % 3)}} for i, text in enumerate(TEXTS)])
    yield pa.array([[{"p": i, "q": [text]}] * (i % 3) for i, text in enumerate(TEXTS)])
    yield pa.array([[f"t{i % 3}"] * (i % 3) for i in rows], pa.list_(pa.dictionary(pa.int8(), pa.string())))
    yield pa.array([{}] * N, pa.struct([]))
    yield pa.array([[{}] * (i % 3) for i in rows], pa.list_(pa.struct([])))


ARRAYS = [*_numbers(), *_strings(), *_vectors(), *_dictionaries(), *_nested()]


def _masked(array, share):
    if not share or pa.types.is_null(array.type) or pa.types.is_struct(array.type):
        return array
    mask = np.random.default_rng(3).random(len(array)) < share
    if pa.types.is_dictionary(array.type):
        kept = pa.array(array.indices.to_pylist(), array.type.index_type, mask=mask)
        return pa.DictionaryArray.from_arrays(kept, array.dictionary)
    return pa.array(array.to_pylist(), array.type, mask=mask)


def _check(place, table):
    theirs, ours = lance.dataset(place), lance_core.dataset(place)
    assert theirs.data_storage_version == ours.data_storage_version == "2.0"
    rows = np.random.default_rng(4).integers(0, len(table), 60).tolist()
    window = {"offset": len(table) // 3, "limit": len(table) // 2}
    for dataset in (theirs, ours):
        got = dataset.to_table()
        assert got.schema.equals(table.schema)
        assert got.to_pydict() == table.to_pydict()
        assert dataset.take(rows).to_pydict() == table.take(rows).to_pydict()
        expected = table.slice(len(table) // 3, len(table) // 2)
        assert dataset.to_table(**window).to_pydict() == expected.to_pydict()


@pytest.mark.parametrize("nulls", NULLS)
def test_every_type(tmp_path, nulls):
    """One table for each column, so that a page that pylance cannot read names its type."""
    for number, array in enumerate(ARRAYS):
        table = pa.table({f"{number} {array.type}": _masked(array, NULLS[nulls])})
        lance_core.write_dataset(table, tmp_path / str(number), data_storage_version="2.0")
        _check(tmp_path / str(number), table)


def test_all_types_in_one_table_with_filters_and_projections(tmp_path, monkeypatch):
    monkeypatch.setattr("lance_core.file.write.writer.PAGE_BYTES", 3000)
    place = tmp_path / "t"
    columns = {f"c{index}": _masked(array, 0.3) for index, array in enumerate(ARRAYS)}
    table = pa.table({"id": pa.array(range(N)), **columns})
    table = table.replace_schema_metadata({"k": "v"})
    lance_core.write_dataset(table, place, data_storage_version="0.3", max_rows_per_file=170)
    _check(place, table)
    theirs, ours = lance.dataset(place), lance_core.dataset(place)
    struct = next(name for name, array in columns.items() if pa.types.is_struct(array.type) and array.type.num_fields)
    for names in (["c3", "id"], [f"{struct}.b.c"], [struct, "c20"], ["c46"]):
        assert ours.to_table(columns=names).to_pydict() == theirs.to_table(columns=names).to_pydict()
    for condition in ("id > 300", "c4 < 20", "c20 = 'row 1'", "c15", "c4 is null and id % 2 = 0"):
        assert ours.to_table(filter=condition).to_pydict() == theirs.to_table(filter=condition).to_pydict()


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary()], ids=str)
@pytest.mark.parametrize("compression", ["zstd", "lz4", "none", "fsst"])
def test_compression_that_was_asked_for(tmp_path, compression, kind):
    metadata = {"lance-encoding:compression": compression, "lance-encoding:compression-level": "7"}
    texts = _masked(pa.array(TEXTS * 10).cast(kind), 0)
    schema = pa.schema([pa.field("t", kind, metadata=metadata), pa.field("l", pa.list_(pa.field("item", kind)))])
    table = pa.table([texts, pa.array([[one] for one in texts.to_pylist()], pa.list_(kind))], schema=schema)
    lance_core.write_dataset(table, tmp_path / "t", data_storage_version="2.0")
    _check(tmp_path / "t", table)
    lance_core.write_dataset(table.select(["t"]), tmp_path / "one", data_storage_version="2.0")
    (path,) = (tmp_path / "one" / "data").iterdir()
    is_smaller = path.stat().st_size < texts.nbytes * 0.8
    assert is_smaller == (compression in {"zstd", "lz4"} or (compression == "fsst" and kind != pa.large_string()))


PACKED = pa.struct(
    [("x", pa.int16()), ("y", pa.list_(pa.list_(pa.float32(), 2), 3)), ("z", pa.decimal128(9, 2)), ("b", pa.binary(3))]
)


def test_packed_structs(tmp_path):
    rows = [
        {"x": i, "y": [[i, 2], [3, 4], [5, 6]], "z": decimal.Decimal(i) / 4, "b": b"%03d" % (i % 1000)}
        for i in range(N)
    ]
    inner = pa.field("item", PACKED, metadata={"lance-encoding:packed": "true"})
    fields = [pa.field("p", PACKED, metadata={"packed": "true"}), pa.field("l", pa.list_(inner))]
    lists = pa.array([rows[: i % 3] if i % 4 else None for i in range(N)], pa.list_(inner))
    table = pa.table([pa.array(rows, PACKED), lists], schema=pa.schema(fields))
    lance_core.write_dataset(table, tmp_path / "t", data_storage_version="2.0")
    _check(tmp_path / "t", table)


def test_blobs(tmp_path):
    values = [b"x" * i if i % 5 else None for i in range(50)] + [b""]
    field = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    schema = pa.schema([field, pa.field("i", pa.int64())])
    table = pa.table([pa.array(values, pa.large_binary()), pa.array(range(51))], schema=schema)
    lance_core.write_dataset(table, tmp_path / "t", data_storage_version="2.0")
    theirs = lance.dataset(tmp_path / "t")
    assert theirs.scanner(blob_handling="all_binary").to_table()["b"].to_pylist() == values
    for dataset in (theirs, lance_core.dataset(tmp_path / "t")):
        found = dataset.take_blobs("b", indices=[0, 1, 7, 50])
        assert [one if one is None else one.readall() for one in found] == [None, b"x", b"x" * 7, b""]
    assert theirs.to_table(columns=["i"], filter="i > 40")["i"].to_pylist() == list(range(41, 51))


def test_both_append_delete_add_columns_and_compact(tmp_path):
    place = tmp_path / "t"
    table = pa.table({"id": range(300), "s": [str(i % 7) for i in range(300)], "l": [[{"a": i}] for i in range(300)]})
    lance_core.write_dataset(table, place, data_storage_version="2.0", max_rows_per_file=70)
    lance.write_dataset(table.slice(0, 50), place, mode="append")
    lance_core.write_dataset(table.slice(50, 50), place, mode="append")
    lance_core.dataset(place).delete("id % 3 = 0")
    lance.dataset(place).add_columns({"twice": "id * 2"})
    lance.dataset(place).delete("id % 5 = 0")
    expected = lance.dataset(place).to_table()
    assert lance_core.dataset(place).to_table().to_pydict() == expected.to_pydict()
    assert lance_core.dataset(place).optimize.compact_files().fragments_added == 1
    theirs = lance.dataset(place)
    (file,) = theirs.get_fragments()[0].data_files()
    assert (theirs.data_storage_version, file.file_major_version, file.file_minor_version) == ("2.0", 2, 0)
    assert theirs.to_table().to_pydict() == expected.to_pydict()
    lance.dataset(place).optimize.compact_files(target_rows_per_fragment=10)
    assert lance_core.dataset(place).to_table().to_pydict() == expected.to_pydict()


def test_all_ways_to_change_a_table_keep_its_file_version(tmp_path):
    place = tmp_path / "t"
    rows = [
        {"id": i, "s": None if i % 7 == 0 else f"text {i % 300}", "l": [{"q": str(i)}] * (i % 3)} for i in range(400)
    ]
    lance_core.write_dataset(rows, place, data_storage_version="2.0", enable_stable_row_ids=True, max_rows_per_file=150)
    ours = lance_core.dataset(place)
    ours.update({"s": "'new'"}, where="id < 10")
    ours.add_columns({"twice": "id * 2"})
    changed = ours.to_table(filter="id between 100 and 120")
    ours.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(changed)
    ours.alter_columns({"path": "twice", "data_type": pa.int32()})
    with pytest.raises(UnsupportedError, match=r"'m'.*2\.0 cannot hold map"):
        ours.add_columns(pa.schema([("m", pa.map_(pa.string(), pa.int8()))]))
    theirs, ours = lance.dataset(place), lance_core.dataset(place)
    files = [file for fragment in theirs.get_fragments() for file in fragment.data_files()]
    assert {(file.file_major_version, file.file_minor_version) for file in files} == {(2, 0)}
    expected = theirs.to_table(with_row_id=True)
    assert ours.to_table(with_row_id=True).to_pydict() == expected.to_pydict()
    assert theirs.count_rows("s = 'new'") == ours.count_rows("s = 'new'") == 10
    ours.optimize.compact_files()
    got = lance.dataset(place).to_table(with_row_id=True)
    assert got.sort_by("id").to_pydict() == expected.sort_by("id").to_pydict()


@pytest.mark.parametrize("version", ["2.0", "2.2"])
def test_a_table_made_of_fragments_has_their_version(tmp_path, version):
    table = pa.table({"a": [1, 2]})
    fragments = write_fragments(table, tmp_path / "theirs", data_storage_version=version)
    theirs = lance.LanceDataset.commit(tmp_path / "theirs", lance.LanceOperation.Overwrite(table.schema, fragments))
    staged = lance_core.write_fragments(table, tmp_path / "t", mode="create", data_storage_version=version)
    made = lance_core.LanceDataset.commit(tmp_path / "t", lance_core.LanceOperation.Overwrite(table.schema, staged))
    assert theirs.data_storage_version == made.data_storage_version == version
    assert lance.dataset(tmp_path / "t").data_storage_version == version
