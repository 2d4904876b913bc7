"""Zone maps: scans skip by them what cannot match, and nothing else."""

import datetime as dt
import decimal
import math

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lance_core
from lance_core.errors import (
    AlreadyExistsError,
    CorruptDataError,
    InvalidInputError,
    NotFoundError,
    UnsupportedError,
)
from lance_core.scan.candidates import candidate_ranges
from lance_core.scan.fragment_reader import FragmentReader
from lance_core.sql.predicate import make_predicate
from lance_core.store.local import LocalStore

pytestmark = pytest.mark.slow


def ranges(dataset, condition):
    """What a scan looks at, by fragment."""
    plan = dataset.scanner(filter=condition)._query.plan
    readers = [FragmentReader(dataset.files, one) for one in dataset.snapshot.manifest.fragments]
    return {
        reader.fragment.id: found
        for reader in readers
        if (found := candidate_ranges(reader, plan, 0, reader.fragment.physical_rows))
    }


def check(dataset, condition):
    """With and without zone maps the rows are the same."""
    expected = dataset.to_table(filter=condition, use_scalar_index=False, with_row_id=True)
    found = dataset.to_table(filter=condition, with_row_id=True)
    assert found.column("_rowid") == expected.column("_rowid")
    assert repr(found.to_pylist()) == repr(expected.to_pylist())
    assert dataset.count_rows(condition) == len(expected)
    return expected


@pytest.fixture
def dataset(tmp_path):
    rows = pa.table({"a": range(60_000), "s": [f"row {number:06d}" for number in range(60_000)]})
    dataset = lance_core.write_dataset(rows, tmp_path / "t", max_rows_per_file=30_000)
    dataset.create_scalar_index("a", "ZONEMAP")
    return dataset


def test_zones_are_skipped(dataset):
    assert ranges(dataset, "a = 5") == {0: [(0, 8192)]}
    assert ranges(dataset, "a >= 16384 AND a < 40000 OR a = 59999") == {
        0: [(16384, 30000)],
        1: [(0, 16384), (24576, 30000)],
    }
    assert ranges(dataset, "a < 0") == {}
    assert ranges(dataset, "NOT (a >= 100)") == {0: [(0, 8192)]}
    assert ranges(dataset, "a IS NULL") == {}
    assert ranges(dataset, "s = 'x'") == {0: [(0, 30000)], 1: [(0, 30000)]}
    assert ranges(dataset, "a = 5 OR s = 'x'") == {0: [(0, 30000)], 1: [(0, 30000)]}
    for condition in ("a = 5", "a % 2 = 0 AND a < 9000", "a IN (1, 29999, 30000)", "a > 8190 AND s < 'row 008195'"):
        check(dataset, condition)


def test_what_is_skipped_is_not_read(tmp_path, monkeypatch):
    rows = pa.table({"a": range(100_000), "b": range(100_000)})
    lance_core.write_dataset(rows, tmp_path / "t", max_rows_per_file=10_000).create_scalar_index("a", "ZONEMAP")
    dataset = lance_core.dataset(tmp_path / "t")
    opened = []
    for name in ("reader", "sized_reader"):
        method = getattr(LocalStore, name)

        def counted(self, path, *args, method=method, **options):
            opened.append(path)
            return method(self, path, *args, **options)

        monkeypatch.setattr(LocalStore, name, counted)
    assert dataset.to_table(filter="a = 55555").to_pylist() == [{"a": 55555, "b": 55555}]
    assert sorted(path.partition("/")[0] for path in set(opened)) == ["_indices", "data"]


def test_uncovered_fragments_are_read(dataset):
    lance_core.write_dataset(pa.table({"a": [5, -1], "s": ["new", "new"]}), dataset, mode="append")
    dataset.checkout_latest()
    assert ranges(dataset, "a = 5") == {0: [(0, 8192)], 2: [(0, 2)]}
    assert check(dataset, "a < 6").column("s").to_pylist()[-2:] == ["new", "new"]
    assert dataset.optimize.optimize_indices() == ["a_idx"]
    assert ranges(dataset, "a = 6") == {0: [(0, 8192)]}
    version = dataset.version
    assert dataset.optimize.optimize_indices() == []
    assert dataset.version == version
    assert dataset.index_statistics("a_idx")["num_unindexed_rows"] == 0


@pytest.mark.filterwarnings("ignore::lance_core.errors.IndexCoverageWarning")
@pytest.mark.parametrize("stable", [False, True])
def test_after_every_change_the_rows_are_right(tmp_path, stable):
    rows = pa.table({"a": range(1000), "b": [number % 7 for number in range(1000)]})
    dataset = lance_core.write_dataset(rows, tmp_path / "t", max_rows_per_file=300, enable_stable_row_ids=stable)
    dataset.create_scalar_index("a", "ZONEMAP", rows_per_zone=100)
    dataset.create_scalar_index("b", "ZONEMAP", rows_per_zone=100)
    changes = [
        lambda: dataset.delete("a < 150"),
        lambda: dataset.update({"a": "a + 5000"}, where="b = 3"),
        lambda: (
            dataset.merge_insert("a")
            .when_matched_update_all()
            .when_not_matched_insert_all()
            .execute(pa.table({"a": [500, 20_000], "b": [99, 99]}))
        ),
        lambda: dataset.replace_where("a = 777", pa.table({"a": [777, -777], "b": [1, 1]})),
        dataset.optimize.compact_files,
        dataset.optimize.optimize_indices,
        lambda: dataset.alter_columns({"path": "b", "name": "c"}),
        lambda: dataset.add_columns({"d": "a * 2"}),
        dataset.restore,
    ]
    for change in changes:
        change()
        dataset.checkout_latest()
        second = "c" if "c" in dataset.schema.names else "b"
        for condition in ("a < 200", "a >= 5000", f"{second} = 99 OR a = -777", f"{second} > 5 AND a > 700", "a = 777"):
            check(dataset, condition)
    dataset.drop_columns(["c"])
    assert [one["name"] for one in dataset.list_indices()] == ["a_idx"]


def test_writes_skip_too(dataset):
    assert dataset.delete("a = 50000")["num_deleted_rows"] == 1
    assert dataset.update({"s": "'changed'"}, where="a = 7")["num_rows_updated"] == 1
    assert check(dataset, "s = 'changed'").column("a").to_pylist() == [7]
    assert dataset.count_rows() == 59_999


def test_deleted_rows_can_still_be_asked_for(dataset):
    dataset.delete("a >= 8192 AND a < 30000")
    dataset.create_scalar_index("a", "ZONEMAP")
    shown = dataset.to_table(filter="a = 9000", with_row_id=True, include_deleted_rows=True)
    assert shown.column("a").to_pylist() == [9000]
    assert dataset.count_rows("a = 9000") == 0


SPECIAL = [None, math.nan, -math.nan, 0.0, -0.0, math.inf, -math.inf, 1.5, -1.5]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    values=st.lists(st.sampled_from(SPECIAL) | st.floats(-3, 3, width=32), min_size=1, max_size=60),
    rows_per_zone=st.integers(1, 9),
    deleted=st.sets(st.integers(0, 59)),
    number=st.sampled_from(["0.0", "-0.0", "1.5", "-1.5", "100.0"]),
)
def test_floats_with_nan_and_null(tmp_path_factory, values, rows_per_zone, deleted, number):
    rows = pa.table({"i": range(len(values)), "f": pa.array(values, pa.float64())})
    dataset = lance_core.write_dataset(rows, tmp_path_factory.mktemp("t") / "t")
    dataset.create_scalar_index("f", "ZONEMAP", rows_per_zone=rows_per_zone)
    if deleted:
        dataset.delete(f"i IN ({', '.join(map(str, deleted))})")
    left = dataset.to_table().combine_chunks()
    conditions = ["f IS NOT NULL", f"f IN ({number}, 1.5) AND i > 3"]
    for operator in ("=", "<>", "<", "<=", ">", ">="):
        compared = f"f {operator} {number}"
        conditions += [compared, f"NOT ({compared})", f"{compared} OR f IS NULL"]
    for condition in conditions:
        answers = make_predicate(condition, dataset.schema).evaluate(left.to_batches()[0]) if len(left) else []
        expected = left.filter(answers) if len(left) else left
        found = dataset.to_table(filter=condition)
        assert repr(found.to_pylist()) == repr(expected.to_pylist()), condition
    check(dataset, conditions[-1])


KINDS = {
    "int8": pa.array([-5, None, 7], pa.int8()),
    "uint64": pa.array([2**64 - 1, None, 7], pa.uint64()),
    "bool": pa.array([True, None, False]),
    "half": pa.array([1.5, None, math.nan], pa.float16()),
    "string": pa.array(["", None, "x" * 5000]),
    "large_binary": pa.array([b"", None, b"\xff"], pa.large_binary()),
    "decimal": pa.array([decimal.Decimal("1.50"), None, decimal.Decimal("-2.25")], pa.decimal128(10, 2)),
    "date": pa.array([dt.date(2020, 1, 1), None, dt.date(1900, 1, 1)]),
    "time": pa.array([1, None, 5], pa.time64("ns")),
    "timestamp": pa.array([1, None, 2**60 + 1], pa.timestamp("ns", "UTC")),
    "duration": pa.array([1, None, 5], pa.duration("us")),
    "all null": pa.nulls(3, pa.int32()),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("version", ["2.0", "2.2"])
def test_types(tmp_path, kind, version):
    values = KINDS[kind]
    rows = pa.table({"a": values, "i": range(3)})
    dataset = lance_core.write_dataset(rows, tmp_path / "t", data_storage_version=version)
    dataset.create_scalar_index("a", "ZONEMAP", rows_per_zone=1)
    assert dataset.index_statistics("a_idx")["indices"] == [{"num_zones": 3, "rows_per_zone": 1}]
    assert check(dataset, "a IS NULL").num_rows == values.null_count
    assert check(dataset, "a IS NOT NULL").num_rows == 3 - values.null_count
    assert len(ranges(dataset, "a IS NULL").get(0, [])) <= 1


def test_fields_of_structs(tmp_path):
    structs = pa.array([{"x": 1, "y": "a"}, None, {"x": None, "y": "b"}, {"x": 40, "y": None}])
    dataset = lance_core.write_dataset(pa.table({"st": structs}), tmp_path / "t")
    dataset.create_scalar_index("st.x", "ZONEMAP", rows_per_zone=1)
    assert [(one["name"], one["fields"]) for one in dataset.list_indices()] == [("st.x_idx", ["st.x"])]
    for condition in ("st.x = 40", "st.x IS NULL", "st.x < 5", "NOT (st.x < 5)"):
        check(dataset, condition)
    assert ranges(dataset, "st.x = 41") == {0: [(1, 3)]}, "of nulls nothing is known"


def test_names_and_kinds_that_make_no_sense(dataset):
    with pytest.raises(UnsupportedError, match="ZONEMAP"):
        dataset.create_scalar_index("a", "RTREE")
    with pytest.raises(InvalidInputError, match="no column 'x'"):
        dataset.create_scalar_index("x", "ZONEMAP")
    with pytest.raises(AlreadyExistsError, match="a_idx"):
        dataset.create_scalar_index("a", "ZONEMAP", replace=False)
    with pytest.raises(AlreadyExistsError, match="another column"):
        dataset.create_scalar_index("s", "ZONEMAP", name="a_idx")
    with pytest.raises(InvalidInputError, match="rows_per_zone"):
        dataset.create_scalar_index("a", "ZONEMAP", rows_per_zone=0)
    for name in ("", "__lance_frag_reuse"):
        with pytest.raises(InvalidInputError, match="name"):
            dataset.create_scalar_index("a", "ZONEMAP", name=name)
    for call in (
        dataset.drop_index,
        dataset.index_statistics,
        lambda name: dataset.optimize.optimize_indices(index_names=[name]),
    ):
        with pytest.raises(NotFoundError, match="nothing"):
            call("nothing")
    assert dataset.version == 2
    assert len(list(dataset.snapshot.store.list("_indices"))) == 1, "what did not happen leaves no files"


def test_lists_have_no_zone_maps(tmp_path):
    dataset = lance_core.write_dataset(pa.table({"l": [[1], [2]]}), tmp_path / "t")
    with pytest.raises(UnsupportedError, match="'l'"):
        dataset.create_scalar_index("l", "ZONEMAP")


def test_dropping_and_covering_parts(dataset):
    dataset.drop_index("a_idx")
    assert dataset.list_indices() == []
    assert ranges(dataset, "a = 5") == {0: [(0, 30000)], 1: [(0, 30000)]}
    dataset.create_scalar_index("a", "ZONEMAP", fragment_ids=[1])
    assert ranges(dataset, "a = 5") == {0: [(0, 30000)]}
    dataset.create_scalar_index("a", "ZONEMAP", train=False)
    assert ranges(dataset, "a = 5") == {0: [(0, 30000)], 1: [(0, 30000)]}
    dataset.optimize.optimize_indices(index_names=["a_idx"])
    assert ranges(dataset, "a = 5") == {0: [(0, 8192)]}


def test_damage_is_told(dataset):
    (path,) = [info.path for info in dataset.snapshot.store.list("_indices")]
    store = dataset.snapshot.store
    data = store.get(path)
    store.put(path, data[:100])
    with pytest.raises(CorruptDataError, match=r"zonemap\.lance"):
        lance_core.dataset(dataset.uri).to_table(filter="a = 5")
    assert lance_core.dataset(dataset.uri).to_table(filter="a = 5", use_scalar_index=False).num_rows == 1
    store.delete([path])
    with pytest.raises(NotFoundError, match=r"zonemap\.lance"):
        lance_core.dataset(dataset.uri).to_table(filter="a = 5")
    lance_core.dataset(dataset.uri).drop_index("a_idx")
    assert lance_core.dataset(dataset.uri).to_table(filter="a = 5").num_rows == 1


def test_two_writers_make_indices(dataset):
    other = lance_core.dataset(dataset.uri)
    dataset.create_scalar_index("s", "ZONEMAP")
    other.delete("a < 10")
    other.create_scalar_index("a", "ZONEMAP", name="second")
    dataset.create_scalar_index("a", "ZONEMAP", name="third")
    assert [one["name"] for one in dataset.list_indices()] == ["a_idx", "s_idx", "second", "third"]
    assert check(dataset, "a < 20").num_rows == 10
