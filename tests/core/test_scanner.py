import math
import struct
from types import SimpleNamespace

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lance_core
from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.scan import ordering
from lance_core.scan.row_starts import RowStarts
from lance_core.scanner import ColumnOrdering, ScannerBuilder
from lance_core.testing.counting_store import open_counting

N = 500
NAN = float("nan")
ROWS = pa.table(
    {
        "id": range(N),
        "key": [(i * 37) % 101 if i % 9 else None for i in range(N)],
        "text": [f"t{(i * 13) % 50:03}" for i in range(N)],
        "st": [{"x": i, "y": str(i)} for i in range(N)],
    }
)
LEFT = [i for i in range(N) if i % 10 != 3]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    made = lance_core.write_dataset(ROWS, tmp_path_factory.mktemp("scanner") / "t", max_rows_per_file=120)
    made.delete("id % 10 = 3")
    return made


def test_computed_columns(dataset):
    table = dataset.to_table(
        columns={"double": "id * 2", "name": "text", "x": "st.x", "where": "_rowaddr"}, filter="id > 100", limit=3
    )
    assert table.to_pydict() == {
        "double": [202, 204, 208],
        "name": [ROWS["text"][i].as_py() for i in (101, 102, 104)],
        "x": [101, 102, 104],
        "where": [101, 102, 104],
    }
    with_id = dataset.to_table(columns={"one": "1"}, with_row_id=True, limit=2)
    assert with_id.to_pydict() == {"one": [1, 1], "_rowid": [0, 1]}
    taken = dataset.take([2, 0], columns={"k": "id + 1"})
    assert taken.to_pydict() == {"k": [3, 1]}
    fragment = dataset.get_fragments()[1]
    assert fragment.to_table(columns={"k": "id + 1"}, limit=1)["k"].to_pylist() == [121]
    assert fragment.take([0, 0], columns={"k": "id + 1"})["k"].to_pylist() == [121, 121]
    assert next(fragment.to_batches(columns={"k": "id + 1"}))["k"][0].as_py() == 121


def key(row, order):
    parts = []
    for one in order:
        value = row[one.column_name]
        rank = {True: -1, False: 1}[one.nulls_first] if value is None else 0
        number = 0 if value is None else value if isinstance(value, int) else int(value[1:])
        parts += [rank, number if one.ascending else -number]
    return parts


@pytest.mark.parametrize("limit", [None, 0, 1, 7, 10_000])
@pytest.mark.parametrize("offset", [0, 5])
@pytest.mark.parametrize(
    "order",
    [
        [ColumnOrdering("key")],
        [ColumnOrdering("key", ascending=False)],
        [ColumnOrdering("text", ascending=False), ColumnOrdering("key", nulls_first=True)],
    ],
)
def test_order(dataset, order, limit, offset):
    rows = sorted((one for one in ROWS.to_pylist() if one["id"] in LEFT), key=lambda one: key(one, order))
    expected = [one["id"] for one in rows][offset:][:limit]
    table = dataset.to_table(order_by=order, limit=limit, offset=offset)
    assert table["id"].to_pylist() == expected
    assert table.schema.names == ROWS.schema.names
    narrow = dataset.to_table(columns={"n": "id"}, order_by=order, limit=limit, offset=offset, filter="id >= 0")
    assert narrow["n"].to_pylist() == expected


@given(st.lists(st.none() | st.floats(), max_size=30), st.booleans(), st.booleans(), st.integers(0, 8))
@settings(max_examples=60, deadline=None)
def test_order_of_floats(values, ascending, nulls_first, count):
    table = pa.table({"a": pa.array(values, pa.float64()), "i": range(len(values))})
    one = ColumnOrdering("a", ascending, nulls_first)
    found = ordering.sorted_rows(table, [one], count)["a"].to_pylist()
    ordered = sorted((x for x in values if x is not None), key=_total_order, reverse=not ascending)
    nulls = [None for x in values if x is None]
    expected = (nulls + ordered if nulls_first else ordered + nulls)[:count]
    assert [x and struct.pack("d", x) for x in found] == [x and struct.pack("d", x) for x in expected]


def _total_order(value):
    """Sort key of IEEE 754's total order."""
    sign = math.copysign(1, value)
    return (sign, sign * (math.inf if math.isnan(value) else abs(value)), math.isnan(value) * sign)


def test_row_offsets_count_the_live_rows_in_the_order_of_the_table(tmp_path):
    table = lance_core.write_dataset(pa.table({"a": range(90)}), tmp_path / "t", max_rows_per_file=30)
    table.delete("a % 7 = 0 OR a < 10 AND a > 2")
    found = table.to_table(columns=["a", "_rowoffset"])
    assert found["_rowoffset"].to_pylist() == list(range(table.count_rows()))
    last = table.to_table(columns=["_rowoffset"], filter="a >= 80")["_rowoffset"].to_pylist()
    assert last == [row for row, a in enumerate(found["a"].to_pylist()) if a >= 80]


def test_row_offsets_follow_the_order_of_fragments_not_their_ids():
    fragments = SimpleNamespace(ids=np.array([5, 2], np.uint64), num_rows=np.array([10, 3], np.uint64))
    starts = RowStarts.of(fragments)
    deleted = np.array([0, 4])
    assert starts.row_offsets(5, deleted, np.array([1, 3, 5])).tolist() == [0, 2, 3]
    assert starts.row_offsets(2, deleted[:0], np.array([0, 2])).tolist() == [10, 12]


def test_with_a_limit_few_rows_are_kept(monkeypatch):
    monkeypatch.setattr(ordering, "_SLACK_ROWS", 10)
    batches = pa.table({"a": [(i * 7919) % 1000 for i in range(1000)]}).to_batches(max_chunksize=20)
    sorter = ordering.Sorter(order=[ColumnOrdering("a")], schema=batches[0].schema, count=5)
    for batch in batches:
        sorter.add(batch)
        assert sum(one.num_rows for one in sorter._batches) <= 40
    assert sorter.finish()["a"].to_pylist() == [0, 1, 2, 3, 4]


@given(
    st.lists(st.none() | st.sampled_from([NAN, -NAN, -1.0, -0.0, 0.0, 1.0, 2.0]), max_size=40),
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_first_rows_are_those_of_the_whole(values, ascending, nulls_first):
    table = pa.table({"a": pa.array(values, pa.float64()), "i": range(len(values))})
    order = [ColumnOrdering("a", ascending, nulls_first), ColumnOrdering("i", ascending=False)]
    sorter = ordering.Sorter(order=order, schema=table.schema, count=3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ordering, "_SLACK_ROWS", 0)
        for batch in table.to_batches(max_chunksize=2):
            sorter.add(batch)
    assert sorter.finish()["i"].to_pylist() == ordering.sorted_rows(table, order, 3)["i"].to_pylist()


KINDS = [pa.bool_(), pa.int8(), pa.float16(), pa.string(), pa.large_binary(), pa.date32(), pa.decimal128(4, 1)]
ORDERINGS = st.tuples(st.booleans(), st.booleans())


@given(
    st.sampled_from(KINDS),
    st.lists(st.tuples(st.none() | st.integers(0, 3), st.none() | st.integers(0, 3)), max_size=30),
    st.tuples(ORDERINGS, ORDERINGS),
    st.integers(0, 12),
)
@settings(max_examples=150, deadline=None)
def test_first_rows_are_found_without_a_sort_of_all(kind, rows, directions, count):
    def values(numbers):
        if pa.types.is_floating(kind):
            return pa.array([None if one is None else np.float16(one) for one in numbers], kind)
        if pa.types.is_boolean(kind):
            return pa.array([None if one is None else one > 1 for one in numbers])
        if pa.types.is_date(kind):
            return pa.array(numbers, pa.int32()).cast(kind)
        to_text = {pa.string(): str, pa.large_binary(): lambda one: b"%d" % one}.get(kind, lambda one: one)
        return pa.array([None if one is None else to_text(one) for one in numbers], kind)

    columns = [values([row[side] for row in rows]) for side in (0, 1)]
    table = pa.table([*columns, pa.array(range(len(rows)))], ["a", "b", "i"])
    order = [ColumnOrdering(name, *flags) for name, flags in zip("ab", directions, strict=True)]
    batch = pa.record_batch([*columns, pa.array(range(len(rows)))], ["a", "b", "i"])
    found = ordering.first_rows(batch, order, count)["i"].to_pylist()
    assert found == sorted(ordering.sorted_rows(table, order, count)["i"].to_pylist())


def test_a_query_with_a_limit_sorts_no_more_rows_than_it_wants(dataset, monkeypatch):
    sorted_counts = []
    sort = ordering.sorted_rows

    def counted(table, *arguments):
        sorted_counts.append(len(table))
        return sort(table, *arguments)

    monkeypatch.setattr(ordering, "sorted_rows", counted)
    expected = dataset.to_table(order_by=["key", "id"])["id"].to_pylist()[:3]
    sorted_counts.clear()
    assert dataset.to_table(order_by=["key", "id"], limit=3, batch_size=20)["id"].to_pylist() == expected
    assert max(sorted_counts) <= 2 * 3


def test_sizes_of_batches(dataset):
    def sizes(**options):
        return [one.num_rows for one in dataset.to_batches(**options)]

    assert sizes(batch_size=64, strict_batch_size=True) == [64] * 7 + [2]
    assert sizes(batch_size=64, strict_batch_size=True, filter="id < 200", columns=["text"]) == [64, 64, 52]
    small = dataset.to_batches(batch_size_bytes=1000)
    assert max(one.nbytes for one in small) < 2000
    assert sum(sizes(batch_size_bytes=1000)) == len(LEFT)
    for wrong in ({"strict_batch_size": True}, {"batch_size_bytes": 0}, {"batch_size": 0}):
        with pytest.raises(InvalidInputError):
            sizes(**wrong)


def test_deleted_rows(dataset):
    table = dataset.to_table(columns=["id"], with_row_id=True, include_deleted_rows=True)
    assert table["id"].to_pylist() == list(range(N))
    assert [i for i, one in enumerate(table["_rowid"].to_pylist()) if one is None] == list(range(3, N, 10))
    table = dataset.to_table(columns=["id"], with_row_id=True, include_deleted_rows=True, filter="id in (3, 4)")
    assert table.to_pydict() == {"id": [3, 4], "_rowid": [None, 4]}
    assert dataset.scanner(with_row_id=True, include_deleted_rows=True).count_rows() == N
    with pytest.raises(InvalidInputError, match="with_row_id"):
        dataset.to_table(include_deleted_rows=True)


def test_scanners(dataset):
    scanner = dataset.scanner(columns={"a": "id + 1", "text": "text"}, filter="id > 10", limit=5, offset=1)
    assert scanner.schema == scanner.projected_schema == pa.schema([("a", pa.int64()), ("text", pa.string())])
    assert scanner.dataset_schema == dataset.schema
    assert scanner.count_rows() == 5
    assert scanner.to_table() == scanner.to_reader().read_all() == pa.table(scanner)
    assert scanner.to_table()["a"].to_pylist() == [13, 15, 16, 17, 18]
    assert scanner.head(2)["a"].to_pylist() == [13, 15]
    assert scanner.to_pandas()["a"].tolist() == [13, 15, 16, 17, 18]
    assert dataset.scanner(limit=3).count_rows() == 3
    assert dataset.scanner(offset=len(LEFT) + 1).count_rows() == 0
    for word in ("id > 10", "limit: 5", "result: a, text", "a = id + 1"):
        assert word in scanner.explain_plan(verbose=True)
    assert "order by: key desc" in dataset.scanner(order_by=[ColumnOrdering("key", ascending=False)]).explain_plan()
    built = ScannerBuilder(dataset).columns(["id"]).filter(pc.field("id") > 10).limit(1).offset(1).with_row_id()
    assert built.batch_size(10).order_by(["id"]).to_scanner().to_table().to_pydict() == {"id": [12], "_rowid": [12]}
    some = ScannerBuilder(dataset).with_fragments(dataset.get_fragments()[1:2]).columns(["id"]).to_scanner()
    assert some.to_table()["id"][0].as_py() == 120
    assert ScannerBuilder(dataset.get_fragments()[1]).limit(1).to_scanner().to_table()["id"][0].as_py() == 120


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"columns": {"a": "nope"}}, InvalidInputError, "no column"),
        ({"columns": {"a": "now()"}}, UnsupportedError, "now"),
        ({"columns": "id"}, InvalidInputError, "list of names"),
        ({"order_by": ["nope"]}, InvalidInputError, "nope"),
        ({"nearest": {"column": "v"}}, InvalidInputError, "nearest"),
        ({"nonsense": 1}, TypeError, "nonsense"),
    ],
)
def test_wrong_scans_are_refused_at_once(dataset, options, error, words):
    with pytest.raises(error, match=words):
        dataset.scanner(**options)


def test_samples(dataset):
    found = dataset.sample(40, columns=["id"], seed=1)["id"].to_pylist()
    assert len(set(found)) == 40
    assert set(found) <= set(LEFT)
    assert found != sorted(found)
    assert found == dataset.sample(40, columns=["id"], seed=1)["id"].to_pylist()
    in_order = dataset.sample(40, columns={"i": "id"}, randomize_order=False)["i"].to_pylist()
    assert in_order == sorted(in_order)
    assert dataset.sample(0).num_rows == 0
    for wrong in (-1, N):
        with pytest.raises(InvalidInputError, match="cannot sample"):
            dataset.sample(wrong)


def test_other_libraries_take_the_dataset(dataset):
    assert pl.DataFrame(dataset)["id"].to_list() == LEFT
    assert pl.from_arrow(dataset.to_reader(columns=["id"]))["id"].to_list() == LEFT
    lazy = pl.scan_pyarrow_dataset(dataset).filter(pl.col("id") > 495).select("text")
    assert lazy.collect()["text"].to_list() == ROWS["text"].to_pylist()[496:]
    assert pa.table(dataset) == dataset.to_table()


def test_ordering_reads_other_columns_of_the_first_rows_only(tmp_path):
    wide = pa.table({"k": range(20_000), "blob": [str(i).zfill(500) for i in range(20_000)]})
    lance_core.write_dataset(wide, tmp_path / "wide")
    dataset, counts = open_counting(tmp_path / "wide")
    found = dataset.to_table(order_by=[ColumnOrdering("k", ascending=False)], limit=2)
    assert [one[-5:] for one in found["blob"].to_pylist()] == ["19999", "19998"]
    assert counts.num_bytes < 1_000_000


def test_duckdb_takes_datasets_and_scanners(dataset):
    scanner = dataset.scanner(columns={"double": "id * 2", "key": "key"}, filter="id < 100")
    with duckdb.connect() as connection:
        connection.register("scanned", scanner.to_reader())
        assert connection.execute("select count(*), sum(id) from dataset").fetchone() == (len(LEFT), sum(LEFT))
        found = connection.execute("select max(double), count(key) from scanned").fetchone()
    assert found == (198, sum(i % 9 > 0 for i in LEFT if i < 100))


def test_queries_of_duckdb_and_polars_read_what_they_need_only(tmp_path):
    rows = pa.table({"i": range(50_000), "f": [i / 7 for i in range(50_000)], "s": ["some text"] * 50_000})
    lance_core.write_dataset(rows, tmp_path / "t")
    dataset, counts = open_counting(tmp_path / "t")
    dataset.to_table(columns=["i", "f"])
    needed = counts.num_bytes
    pushed = dataset.to_arrow_dataset()
    expected = sum(i / 7 for i in range(10))
    counts.clear()
    assert duckdb.sql("select sum(f) from pushed where i < 10").fetchall() == [(pytest.approx(expected),)]
    assert 0 < counts.num_bytes <= needed
    counts.clear()
    lazy = pl.scan_pyarrow_dataset(pushed).filter(pl.col("i") < 10).select(pl.col("f").sum())
    assert lazy.collect().item() == pytest.approx(expected)
    assert 0 < counts.num_bytes <= needed
    assert pushed.schema == rows.schema
    assert (pushed.count_rows(), pushed.head(2).num_rows, pushed.to_table(columns=["s"]).shape) == (
        50_000,
        2,
        (50_000, 1),
    )
    with pytest.raises(UnsupportedError, match="only reads"):
        pushed.get_fragments()


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_rows_without_columns_are_counted(tmp_path, version):
    rows = pa.table({"i": range(3000)})
    dataset = lance_core.write_dataset(rows, tmp_path / "t", max_rows_per_file=1000, data_storage_version=version)
    dataset.delete("i IN (1, 2500)")
    assert dataset.to_table(columns=[]).num_rows == 2998
    assert dataset.to_table(columns=[], filter="i % 2 = 0", batch_size=7).num_rows == 1499
    assert dataset.take([5, 0, 5], columns=[]).num_rows == 3
    assert dataset.take([], columns=[]).num_rows == 0
    assert dataset._take_rows([0, 2, 1 << 32, 0], columns=[]).num_rows == 4
    assert dataset.head(10, columns=[]).num_rows == 10
    assert dataset.sample(20, columns=[]).num_rows == 20
    assert len(dataset.to_pandas(columns=[])) == 2998
    fragment = dataset.get_fragments()[0]
    assert fragment.to_table(columns=[]).num_rows == 999
    assert fragment.to_table(columns=[], filter="i > 990").num_rows == 9
    assert sum(one.num_rows for one in fragment.to_batches(columns=[], batch_size=10)) == 999
    assert fragment.take([4, 0, 4], columns=[]).num_rows == 3
    assert dataset.scanner(columns=[], fragments=[fragment], limit=5).to_table().num_rows == 5


@pytest.mark.parametrize(
    ("work", "words"),
    [
        (lambda table: table.to_table(columns=5), "'columns' must be"),
        (lambda table: table.to_table(columns=["a", 5]), "'columns' must be"),
        (lambda table: table.to_table(columns={"i": 5}), "SQL text for 'i', not 5"),
        (lambda table: table.to_table(order_by=5), "'order_by' must be a list"),
        (lambda table: table.to_table(order_by=[5]), "'order_by' must have names"),
        (lambda table: table.scanner(fragments=[7]), "'fragments' must be a list of LanceFragment"),
        (lambda table: table.to_table(limit="x"), "'limit' must be a whole number"),
        (lambda table: table.take("x"), "'indices' must be a list of whole numbers"),
        (lambda table: table.take([1.5]), "'indices' must be a list of whole numbers, not of float64"),
        (lambda table: table.take(5), "'indices' must be a list of whole numbers"),
        (lambda table: table.cleanup_old_versions(5), "'older_than' must be a timedelta"),
        (lambda _: lance_core.dataset(5), "must be text or a path, not 5"),
        (lambda table: table.merge_insert(5), "'on' must be a name"),
        (lambda table: table.update(5), "'updates' must be a dict"),
        (lambda table: table.tags.create(5), "must be text"),
        (lambda table: table.create_scalar_index(5, "BTREE"), "'column' must be a name"),
    ],
)
def test_values_of_other_types_are_refused(dataset, work, words):
    with pytest.raises(InvalidInputError, match=words):
        work(dataset)
