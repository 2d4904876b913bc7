"""Files of version 0.1 that lance_core writes: pylance reads and changes them, and uses their statistics."""

import os
import struct
from itertools import pairwise

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lance_core
from lance_core.encoding.arrow_values import offset_dtype
from lance_core.encoding.v0_1.encode import PageBytes, put_offsets, put_values
from lance_core.encoding.v0_1.statistics import group_statistics, has_statistics
from lance_core.errors import CorruptDataError, InvalidInputError, LanceError, UnsupportedError
from lance_core.file.read.reader import DataFileReader
from lance_core.format.file.legacy_file import decode_legacy_metadata
from lance_core.store.local import LocalStore
from tests.compat.test_files_0_1 import ARRAYS, N
from tests.compat.test_files_0_1_statistics import COLUMNS, REQUIRED, conditions

IS_DEEP = os.environ.get("LANCE_TESTS") == "deep"

SLOW = settings(max_examples=250 if IS_DEEP else 15, deadline=None, suppress_health_check=list(HealthCheck))
LEGACY = {"data_storage_version": "legacy"}


def _files(place):
    return sorted((place / "data").iterdir())


def _reader(path):
    return DataFileReader(LocalStore(str(path.parent)).reader(path.name), path=path.name)


def check(place):
    """Both read the same; returns it."""
    ours, theirs = lance_core.dataset(place), lance.dataset(str(place))
    got, expected = ours.to_table(), theirs.to_table()
    got.validate(full=True)
    assert got.schema.equals(expected.schema)
    assert got.equals(expected) or str(got.to_pylist()) == str(expected.to_pylist())
    if len(got):
        rows = np.random.default_rng(len(got)).integers(0, len(got), 9).tolist()
        assert str(theirs.take(rows).to_pylist()) == str(ours.take(rows).to_pylist())
    assert theirs.data_storage_version == ours.data_storage_version == "0.1"
    return got


def _written_as_both(tmp_path, table, **options):
    """The same data, written by each: their files."""
    for who in (lance, lance_core):
        who.write_dataset(table, str(tmp_path / who.__name__), **LEGACY, **options)
    return [_files(tmp_path / who.__name__) for who in (lance, lance_core)]


# ------------------------------------------------------------------------------------------------------- bytes


@pytest.mark.parametrize("group", [1024, 70])
def test_pages_page_table_and_statistics_are_those_of_pylance_byte_by_byte(tmp_path, group):
    columns = {f"c{index}": array for index, array in enumerate(ARRAYS) if not pa.types.is_dictionary(array.type)}
    columns["none"] = pa.array([None] * N, pa.string())
    theirs, ours = _written_as_both(tmp_path, pa.table(columns), max_rows_per_group=group)
    for one, other in zip(theirs, ours, strict=True):
        expected, got = one.read_bytes(), other.read_bytes()
        end = _schema_position(expected)
        assert got[:end] == expected[:end]
        assert len(got) < len(expected) + 600 + len(expected) // 500  # checksums and their place


def _schema_position(data):
    """Where all is over that does not name its writer."""
    (metadata,) = struct.unpack_from("<q", data, len(data) - 16)
    (size,) = struct.unpack_from("<I", data, metadata)
    return decode_legacy_metadata(data[metadata + 4 : metadata + 4 + size]).schema_position


def test_example_of_the_specification():
    pages = PageBytes(0)
    assert put_values(pa.array([1, 2, 0], pa.int32()), pages) == 0
    assert put_values(pa.array(["x", None, "zz"]), pages) == 15
    assert put_values(pa.array([True, False, True]), pages) == 47
    assert put_offsets(np.array([2, 0, 1]), pages, is_large=False) == 48
    assert pages.take() == b"".join(
        [
            bytes.fromhex("01000000 02000000 00000000"),
            b"xzz",
            struct.pack("<4q", 12, 13, 13, 15),
            b"\x05",
            struct.pack("<4i", 0, 2, 2, 3),
        ]
    )


def test_files_have_checksums_that_find_each_flipped_bit(tmp_path):
    table = pa.table({f"c{index}": array for index, array in enumerate(ARRAYS)})
    lance_core.write_dataset(table, tmp_path / "t", **LEGACY, max_rows_per_group=64)
    (path,) = _files(tmp_path / "t")
    content = path.read_bytes()
    places = np.random.default_rng(2).integers(0, (len(content) - 16) * 8, 1200 if IS_DEEP else 60).tolist()
    for place in places:
        damaged = bytearray(content)
        damaged[place // 8] ^= 1 << place % 8
        path.write_bytes(bytes(damaged))
        report = lance_core.dataset(tmp_path / "t").verify(level="full")
        assert not report.is_ok or damaged[-56:] != content[-56:]
    path.write_bytes(content)
    assert lance_core.dataset(tmp_path / "t").verify(level="full").is_ok


# -------------------------------------------------------------------------------------------------- statistics

LONG = st.sampled_from(["a" * 63 + "\u00e9", "a" * 62 + "\u20ac" + "b", "\U0010ffff" * 17, "\x7f" * 70, "z", "b" * 64])
BYTES = st.sampled_from([b"\xff" * 64, b"\xff" * 65, b"a" * 63 + b"\xff\x01", b"a" * 64, b"z", b"\x00"])
MORE = {
    "long": (pa.string(), LONG),
    "large": (pa.large_string(), LONG),
    "bytes": (pa.binary(), BYTES),
    "e": (pa.decimal128(38, 0), st.sampled_from([-(10**38) + 1, 0, 7, 10**38 - 1])),
    "g": (pa.float32(), st.sampled_from([float("nan"), float("-inf"), -0.0, 0.0, 2.5])),
    "ms": (pa.date64(), st.integers(-3, 3).map(lambda day: day * 86_400_000)),
    "big": (pa.uint64(), st.sampled_from([0, 1, 2**64 - 1])),
    "small": (pa.int8(), st.integers(-128, 127)),
}


@st.composite
def columns_of(draw, kinds):
    count = draw(st.integers(1, 20))
    columns = {}
    for name, (kind, values) in kinds.items():
        nulls = draw(st.sampled_from([st.nothing(), st.none()]))
        few = draw(st.lists(values, min_size=1, max_size=4))
        items = draw(st.lists(st.one_of(nulls, st.sampled_from(few)), min_size=count, max_size=count))
        if draw(st.integers(0, 9)) == 0 and nulls is not st.nothing():
            items = [None] * count if None in items else items
        columns[name] = _array(items, kind)
    return pa.table(columns)


def _array(items, kind):
    if pa.types.is_decimal(kind):
        return pa.array(items, pa.decimal256(60, kind.scale)).cast(kind)
    return pa.array(items, pa.int64()).cast(kind) if pa.types.is_date64(kind) else pa.array(items, kind)


@SLOW
@given(table=columns_of({**COLUMNS, **MORE}), group=st.integers(1, 7))
def test_statistics_are_those_of_pylance_bit_by_bit(tmp_path_factory, table, group):
    """Nulls included, which our writer refuses for most types."""
    place = tmp_path_factory.mktemp("s") / "t"
    lance.write_dataset(table, str(place), **LEGACY, max_rows_per_group=group)
    reader = _reader(_files(place)[0])
    bounds, found = reader.batch_statistics([field.id for field in reader.schema.fields])
    kept = [field for field in reader.schema.fields if has_statistics(field.to_arrow().type)]
    assert sorted(found) == [field.id for field in kept]
    for field in kept:
        column, known = table[field.name].combine_chunks(), found[field.id]
        groups = [column.slice(start, end - start) for start, end in pairwise(bounds.tolist())]
        ours = [group_statistics(one) for one in groups]
        assert known.null_count.tolist() == [one.null_count for one in ours], field.name
        for stored, made in (
            (known.minimum, [one.minimum for one in ours]),
            (known.maximum, [one.maximum for one in ours]),
        ):
            # an empty string is stored as an unknown bound is
            made = [one or None for one in made] if offset_dtype(stored.type) is not None else made  # noqa: PLW2901
            assert _raw(stored) == made, (field.name, column.to_pylist(), bounds.tolist())


def _raw(bounds):
    kind = bounds.type
    if offset_dtype(kind) is not None:
        return [one.as_py() if one.is_valid else None for one in bounds.cast(pa.large_binary())]
    if pa.types.is_boolean(kind):
        return [bytes([one]) for one in bounds.to_pylist()]
    width = kind.bit_width // 8
    data = bounds.buffers()[1].to_pybytes()
    return [data[at * width : (at + 1) * width] for at in range(len(bounds))]


@st.composite
def full_tables(draw):
    """Tables that version 0.1 holds: nulls and no empty strings in nullable columns of strings."""
    count = draw(st.integers(1, 40))
    arrays, fields = [], []
    for name, (kind, values) in COLUMNS.items():
        is_text = offset_dtype(kind) is not None
        one = values.filter(bool) if is_text and name not in REQUIRED else values
        if is_text and name not in REQUIRED:
            one = st.one_of(st.none(), one)
        arrays.append(pa.array(draw(st.lists(one, min_size=count, max_size=count)), kind))
        fields.append(pa.field(name, kind, nullable=name not in REQUIRED))
    lists = st.lists(st.one_of(st.none(), st.text("ab", min_size=1)), max_size=3)
    arrays.append(pa.array(draw(st.lists(lists, min_size=count, max_size=count)), pa.list_(pa.string())))
    xs = draw(st.lists(st.integers(-5, 5), min_size=count, max_size=count))
    arrays.append(pa.array([{"x": x} for x in xs], pa.struct([("x", pa.int32())])))
    words = draw(st.lists(st.sampled_from(["a", "b", None]), min_size=count, max_size=count))
    arrays.append(pa.array(words, pa.string()).dictionary_encode())
    names = ["l", "st", "w"]
    fields += [pa.field(name, array.type) for name, array in zip(names, arrays[-3:], strict=True)]
    return pa.table(arrays, schema=pa.schema(fields))


@SLOW
@given(
    table=full_tables(),
    sizes=st.tuples(st.integers(1, 9), st.integers(1, 30), st.integers(1, 12)),
    wanted=st.lists(conditions().filter(lambda one: not one.startswith("c ")), min_size=3, max_size=3),
)
def test_pylance_reads_all_rows_and_skips_groups_by_our_statistics(tmp_path_factory, table, sizes, wanted):
    group, rows_per_file, batch = sizes
    place = tmp_path_factory.mktemp("w") / "t"
    batches = table.to_batches(max_chunksize=batch)
    lance_core.write_dataset(
        pa.Table.from_batches(batches), place, **LEGACY, max_rows_per_group=group, max_rows_per_file=rows_per_file
    )
    assert str(check(place).to_pylist()) == str(table.to_pylist())
    theirs = lance.dataset(str(place))
    for condition in wanted:
        answers = [
            theirs.scanner(filter=condition).to_table(),
            theirs.scanner(filter=condition, use_stats=False).to_table(),
            lance_core.dataset(place).to_table(filter=condition),
        ]
        assert len({str(one.to_pylist()) for one in answers}) == 1, condition


def test_pylance_skips_row_groups(tmp_path):
    """A group whose statistics cannot match is not even read: its pages may be garbage."""
    table = pa.table({"id": range(1000), "s": [f"{one:04}" for one in range(1000)]})
    lance_core.write_dataset(table, tmp_path / "t", **LEGACY, max_rows_per_group=100)
    (path,) = _files(tmp_path / "t")
    content = bytearray(path.read_bytes())
    content[100 : 8 * 90] = bytes(620)  # ids of the first group become 0
    path.write_bytes(bytes(content))
    theirs = lance.dataset(str(tmp_path / "t"))
    assert theirs.to_table(filter="id = 0 and id > -1", columns=["id"]).num_rows > 50
    assert theirs.to_table(filter="id = 250", columns=["s"])["s"].to_pylist() == ["0250"]
    assert theirs.to_table(filter="s < '0000'").num_rows == 0


# ------------------------------------------------------------------------------------------- what would be lost


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, None], pa.int32()),
        ([1.5, None], pa.float16()),
        ([True, None], pa.bool_()),
        ([None, None], pa.timestamp("us", "UTC")),
        ([[1.0, 2.0], None], pa.list_(pa.float32(), 2)),
        ([[1.0, None]], pa.list_(pa.float32(), 2)),
        ([[[1, 2], [3, None]]], pa.list_(pa.list_(pa.int8(), 2), 2)),
        ([[1], None], pa.list_(pa.int64())),
        ([[1, None]], pa.large_list(pa.int64())),
        ([{"a": "x"}, None], pa.struct([("a", pa.string())])),
        ([{"a": 1}, {"a": None}], pa.struct([("a", pa.int8())])),
        ([[{"a": None}]], pa.list_(pa.struct([("a", pa.date32())]))),
        ([7, None], pa.dictionary(pa.int8(), pa.int64())),
    ],
)
def test_nulls_that_would_become_values_are_refused(tmp_path, values, kind):
    values = [None if one is None else np.float16(one) for one in values] if kind == pa.float16() else values
    with pytest.raises(InvalidInputError, match=r"'c.* null.*0\.1.*2\.2"):
        lance_core.write_dataset(pa.table({"c": pa.array(values, kind)}), tmp_path / "t", **LEGACY)
    assert not list(tmp_path.rglob("*.lance"))


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_binary(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
)
def test_empty_strings_that_would_become_null_are_refused(tmp_path, kind):
    array = pa.array(["a", None, ""])
    array = array.dictionary_encode() if pa.types.is_dictionary(kind) else array.cast(kind)
    with pytest.raises(InvalidInputError, match=r"'c' has 1 empty value.*0\.1.*2\.2"):
        lance_core.write_dataset(pa.table({"c": array}), tmp_path / "t", **LEGACY)
    if not pa.types.is_dictionary(kind):
        schema = pa.schema([pa.field("c", kind, nullable=False)])
        filled = pa.array(["a", "", "b"]).cast(kind)
        lance_core.write_dataset(pa.table([filled], schema=schema), tmp_path / "t", **LEGACY)
        assert len(check(tmp_path / "t")["c"][1].as_py()) == 0


def test_nulls_and_dictionaries_with_unused_values_are_kept(tmp_path):
    keys = pa.array([0, None, 2, 0], pa.int8())
    table = pa.table(
        {
            "d": pa.DictionaryArray.from_arrays(keys, pa.array(["a", "", "c"])),
            "n": pa.DictionaryArray.from_arrays(pa.array([1, 0, 1, 1], pa.int8()), pa.array([5, 7], pa.int16())),
            "x": pa.nulls(4),
            "b": pa.array([None, b"1", None, b"2"]),
        }
    )
    lance_core.write_dataset(table, tmp_path / "t", **LEGACY, max_rows_per_group=2)
    assert check(tmp_path / "t").to_pylist() == table.to_pylist()
    assert lance.dataset(str(tmp_path / "t")).count_rows("d is null") == 1


@pytest.mark.parametrize(
    "kind",
    [
        pa.map_(pa.string(), pa.int8()),
        pa.struct([]),
        pa.list_(pa.struct([("a", pa.int8())]), 2),
        pa.list_(pa.bool_(), 2),
        pa.dictionary(pa.int8(), pa.float32()),
        pa.dictionary(pa.int8(), pa.bool_()),
        pa.binary(0),
        pa.struct([("a", pa.struct([]))]),
    ],
)
def test_types_without_place_are_refused_by_name(tmp_path, kind):
    with pytest.raises(UnsupportedError, match=r"'c.*0\.1.*2\.2|'c"):
        lance_core.write_dataset(pa.table({"c": pa.nulls(1, kind)}), tmp_path / "t", **LEGACY)
    assert not list(tmp_path.rglob("*.lance"))


# ------------------------------------------------------------------------------------------------- dictionaries


def _words(*values, index=None):
    return pa.array(list(values)).dictionary_encode().cast(pa.dictionary(index or pa.int8(), pa.string()))


def test_batches_and_files_of_one_write_share_one_dictionary(tmp_path):
    """pylance keeps the first batch's, and reads other values for the second."""
    chunks = pa.chunked_array([_words("a", "b"), _words("c", "a"), _words("d", None, "b")])
    table = pa.table({"d": chunks, "l": [[one] for one in "uvwuvwx"]})
    table = table.set_column(1, "l", table["l"].cast(pa.list_(pa.dictionary(pa.int16(), pa.string()))))
    lance_core.write_dataset(table, tmp_path / "t", **LEGACY, max_rows_per_file=3, max_rows_per_group=2)
    assert check(tmp_path / "t").to_pylist() == table.to_pylist()


def test_appended_values_enter_the_dictionary(tmp_path):
    place = tmp_path / "t"
    lance.write_dataset(pa.table({"d": _words("b", "a")}), str(place), **LEGACY)
    lance_core.write_dataset(pa.table({"d": _words("c", "a", None)}), place, mode="append")
    dataset = lance_core.dataset(place)
    dataset.delete("d = 'b'")
    lance_core.write_dataset(pa.table({"d": _words("c", "d")}), place, mode="append")
    dataset = lance_core.dataset(place)
    dataset.optimize.compact_files()
    expected = ["a", "c", "a", None, "c", "d"]
    assert check(place)["d"].to_pylist() == expected
    lance.write_dataset(lance.dataset(str(place)).to_table(), str(place), mode="append")
    assert check(place)["d"].to_pylist() == expected * 2
    assert lance.dataset(str(place), version=1).to_table()["d"].to_pylist() == ["b", "a"]
    assert lance_core.dataset(place, version=1).to_table()["d"].to_pylist() == ["b", "a"]


def test_dictionaries_that_grew_apart_are_refused(tmp_path):
    place = tmp_path / "t"
    lance_core.write_dataset(pa.table({"d": _words("a")}), place, **LEGACY)
    one, other = (lance_core.write_fragments(pa.table({"d": _words(word)}), place) for word in "bc")
    append = lance_core.LanceOperation.Append
    lance_core.LanceDataset.commit(place, append(one), read_version=1)
    with pytest.raises(LanceError, match=r"'d'.*read the newest version"):
        lance_core.LanceDataset.commit(place, append(other), read_version=1)
    with pytest.raises(InvalidInputError, match=r"'d'.*dictionaries that differ"):
        lance_core.LanceDataset.commit(place, append(other), read_version=2)
    assert check(place)["d"].to_pylist() == ["a", "b"]
    chunks = [_words(*(f"{one}" for one in numbers)) for numbers in (range(100), range(100, 129))]
    with pytest.raises(InvalidInputError, match=r"'d'.*131 values, too many"):
        lance_core.write_dataset(pa.table({"d": pa.chunked_array(chunks)}), place, mode="append")


def test_fragments_written_elsewhere_bring_their_dictionary(tmp_path):
    table = pa.table({"d": _words("a", "b", "c"), "id": [1, 2, 3]})
    fragments = lance_core.write_fragments(table, tmp_path / "t", mode="create", max_rows_per_file=2, **LEGACY)
    lance_core.LanceDataset.commit(tmp_path / "t", lance_core.LanceOperation.Overwrite(table.schema, fragments))
    assert check(tmp_path / "t").to_pylist() == table.to_pylist()
    dataset = lance_core.dataset(tmp_path / "t")
    dataset.merge(pa.table({"id": [1, 2, 3], "e": _words("x", "y", "x")}), "id")
    assert check(tmp_path / "t")["e"].to_pylist() == ["x", "y", "x"]


# ---------------------------------------------------------------------------------------------------- operations

ROWS = pa.table(
    {
        "id": pa.array(range(30)),
        "f": pa.array(np.arange(30) / 2),
        "s": [f"t{one}" for one in range(30)],
        "st": [{"a": one, "b": f"x{one}"} for one in range(30)],
        "l": [[one] * (one % 3) for one in range(30)],
        "d": pa.array(["a", "b", "c"] * 10).dictionary_encode(),
    }
)


def _merged(dataset):
    new = ROWS.slice(25).set_column(0, "id", pa.array([25, 26, 100, 101, 102]))
    dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(new)


CHANGES = {
    "append": lambda one, who: who.write_dataset(ROWS, one.uri, mode="append"),
    "overwrite": lambda one, who: who.write_dataset(ROWS.slice(3, 9), one.uri, mode="overwrite"),
    "delete": lambda one, _: one.delete("id % 4 = 1"),
    "update": lambda one, _: one.update({"f": "f + 100", "s": "'new'"}, where="id > 20"),
    "merge_insert": lambda one, _: _merged(one),
    "merge": lambda one, _: one.merge(pa.table({"id": range(200), "m": [str(one) for one in range(200)]}), "id"),
    "add_columns": lambda one, _: one.add_columns({"twice": "id * 2"}),
    "rename": lambda one, _: one.alter_columns({"path": "st.b", "name": "bb"}),
    "cast": lambda one, _: one.alter_columns({"path": "id", "data_type": pa.int32()}),
    "drop": lambda one, _: one.drop_columns(["st.a", "l"]),
    "compact": lambda one, _: one.optimize.compact_files(),
}


# The first writers take turns; each change meets both in deep.
WRITERS = [lance, lance_core]
FIRST = [(first, writer) for i, first in enumerate(CHANGES) for writer in (WRITERS if IS_DEEP else [WRITERS[i % 2]])]


@pytest.mark.parametrize(("first", "writer"), FIRST, ids=lambda one: getattr(one, "__name__", one))
def test_changes_leave_what_both_read(tmp_path, writer, first):
    """A change by us, then one of each kind by pylance and by us in turn; every version is what pylance makes alone."""
    ours, alone = tmp_path / "ours", tmp_path / "alone"
    options = {**LEGACY, "max_rows_per_file": 12, "max_rows_per_group": 5}
    writer.write_dataset(ROWS, str(ours), **options)
    lance.write_dataset(ROWS, str(alone), **options)
    steps = [first, "delete", "compact", "append", "update"]
    if first in {"merge", "add_columns", "rename", "cast", "drop"}:
        steps.remove("append")  # the rows lack, or have, other columns then
    for number, step in enumerate(steps):
        who = lance if number % 2 else lance_core
        CHANGES[step](who.dataset(str(ours)), who)
        CHANGES[step](lance.dataset(str(alone)), lance)
        got, expected = check(ours), lance.dataset(str(alone)).to_table()
        key = [(got.schema.names[0], "ascending")]
        assert got.sort_by(key).to_pylist() == expected.sort_by(key).to_pylist(), step
    assert lance_core.dataset(ours).verify(level="full").is_ok


def test_added_columns_have_the_row_groups_of_the_files_beside_them(tmp_path):
    place = tmp_path / "t"
    lance.write_dataset(ROWS, str(place), **LEGACY, max_rows_per_group=7)
    before = set(_files(place))
    lance_core.dataset(place).delete("id in (0, 1, 8, 29)")
    lance_core.dataset(place).add_columns({"twice": "id * 2", "text": "s"})
    (added,) = set(_files(place)) - before
    assert _reader(added).batch_statistics(())[0].tolist() == [0, 7, 14, 21, 28, 30]
    table = check(place)
    assert table["twice"].to_pylist() == [2 * one for one in table["id"].to_pylist()]
    assert table["text"].to_pylist() == table["s"].to_pylist()


def test_columns_may_be_missing_only_where_null_has_a_place(tmp_path):
    place = tmp_path / "t"
    lance_core.write_dataset(pa.table({"s": ["a"], "n": [1]}), place, **LEGACY)
    lance_core.write_dataset(pa.table({"n": [2]}), place, mode="append")
    assert check(place).to_pylist() == [{"s": "a", "n": 1}, {"s": None, "n": 2}]
    with pytest.raises(InvalidInputError, match=r"'n' is missing.*0\.1.*int64"):
        lance_core.write_dataset(pa.table({"s": ["b"]}), place, mode="append")
    with pytest.raises(InvalidInputError, match=r"'z' has 1 nulls.*int64"):
        lance_core.dataset(place).merge(pa.table({"n": [1], "z": [1]}), "n")
    with pytest.raises(UnsupportedError, match=r"0\.1 cannot replace some columns"):
        lance_core.dataset(place).get_fragments()[0].update_columns(pa.table({"n": [1], "s": ["q"]}), "n")


@pytest.mark.parametrize("kind", [pa.string(), pa.large_binary()], ids=str)
def test_columns_with_empty_values_do_not_become_nullable(tmp_path, kind):
    schema = pa.schema([pa.field("c", kind, nullable=False), pa.field("e", kind, nullable=False)])
    table = pa.table([pa.array(["a", ""]).cast(kind), pa.array(["b", "c"]).cast(kind)], schema=schema)
    dataset = lance_core.write_dataset(table, tmp_path / "t", **LEGACY)
    with pytest.raises(InvalidInputError, match=r"'c' has empty values.*0\.1"):
        dataset.alter_columns({"path": "c", "nullable": True})
    dataset.alter_columns({"path": "e", "nullable": True})
    assert check(tmp_path / "t").to_pylist() == table.to_pylist()


def test_versions_do_not_mix(tmp_path):
    place = tmp_path / "t"
    lance_core.write_dataset(ROWS, place, **LEGACY)
    with pytest.raises(InvalidInputError, match="mode overwrite"):
        lance_core.write_dataset(ROWS, place, mode="append", data_storage_version="2.2")
    assert lance_core.write_dataset(ROWS, place, mode="overwrite").data_storage_version == "0.1"
    newer = lance_core.write_dataset(ROWS, place, mode="overwrite", data_storage_version="2.2")
    assert newer.data_storage_version == lance.dataset(str(place)).data_storage_version == "2.2"
    older = lance_core.write_dataset(ROWS, place, mode="overwrite", data_storage_version="0.1")
    assert older.to_table().equals(lance.dataset(str(place)).to_table())
    assert older.to_table().equals(ROWS)
    assert lance.dataset(str(place)).data_storage_version == "0.1"


def test_tables_without_rows_and_with_stable_row_ids(tmp_path):
    place = tmp_path / "t"
    lance_core.write_dataset(ROWS.slice(0, 0), place, **LEGACY, enable_stable_row_ids=True)
    assert check(place).num_rows == 0
    lance_core.write_dataset(ROWS, place, mode="append", max_rows_per_file=10)
    dataset = lance_core.dataset(place)
    dataset.update({"f": "1.0"}, where="id = 3")
    dataset.optimize.compact_files()
    assert check(place).num_rows == 30
    ids = [one.to_table(columns=["id"], with_row_id=True).sort_by("id") for one in (dataset, lance.dataset(str(place)))]
    assert ids[0]["_rowid"].to_pylist() == ids[1]["_rowid"].to_pylist() == list(range(30))


def test_damaged_dictionaries_raise_only_our_errors(tmp_path):
    fragments = lance_core.write_fragments(pa.table({"d": _words("a", "b")}), tmp_path / "t", mode="create", **LEGACY)
    (path,) = _files(tmp_path / "t")
    path.write_bytes(path.read_bytes()[:-20] + bytes(20))
    operation = lance_core.LanceOperation.Overwrite(
        pa.schema([("d", pa.dictionary(pa.int8(), pa.string()))]), fragments
    )
    with pytest.raises(CorruptDataError):
        lance_core.LanceDataset.commit(tmp_path / "t", operation)


def test_extension_types(tmp_path):
    json = pa.array(['{"a":1}', None, '{"b":[]}'], pa.json_())
    table = pa.table({"j": json, "u": pa.array([bytes([one]) * 16 for one in range(3)], pa.uuid())})
    lance_core.write_dataset(table, tmp_path / "t", **LEGACY, max_rows_per_group=2)
    assert check(tmp_path / "t").equals(table)
    lance.write_dataset(table, str(tmp_path / "t"), mode="append")
    lance_core.dataset(tmp_path / "t").optimize.compact_files()
    assert check(tmp_path / "t").to_pylist() == table.to_pylist() * 2
