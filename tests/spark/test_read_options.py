"""What a read plans and reads, without Spark: the planning and the tasks are plain Python."""

import datetime as dt
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import types as st

import lance_core
from lance_core.errors import InvalidInputError, RefNotFoundError, UnsupportedError
from lance_core.spark.common.options import parse_options
from lance_core.spark.common.read_options import ReadOptions
from lance_core.spark.reading import found_rows, reader
from lance_core.spark.reading.reader import LanceReader
from lance_core.spark.source import LanceDataSource
from lance_core.store import local_reader


def rows(*numbers):
    return pa.table({"id": pa.array(numbers, pa.int64()), "s": [f"row {number}" for number in numbers]})


def numbers(*names):
    return st.StructType([st.StructField(name, st.LongType()) for name in names])


class Read:
    """A read as Spark would do it."""

    def __init__(self, uri, *longs, **options):
        source = LanceDataSource({"path": uri, **options})
        self.schema = numbers(*longs) if longs else source.schema()
        self.reader = source.reader(self.schema)
        self.parts = self.reader.partitions()

    def rows(self):
        return [row for part in self.parts for batch in self.reader.read(part) for row in batch.to_pylist()]

    def ids(self):
        return [row["id"] for row in self.rows()]


@pytest.fixture
def table(tmp_path):
    uri = str(tmp_path / "t")
    lance_core.write_dataset(rows(*range(20)), uri, max_rows_per_file=5, enable_stable_row_ids=True)
    return uri


def test_branches_and_points_in_time(table):
    lance_core.write_dataset(rows(20), table, mode="append")
    lance_core.dataset(table).create_branch("dev", 1)
    branch = lance_core.dataset(table, branch="dev")
    lance_core.write_dataset(rows(30), branch.uri, mode="append")
    lance_core.dataset(table, branch="dev").tags.create("tagged", lance_core.dataset(table, branch="dev").version)
    newest = lance_core.dataset(table, branch="dev").version
    assert Read(table).ids()[-1] == 20
    assert Read(table, branch="dev").ids()[-1] == 30
    assert Read(table, branch="dev", version="1" if newest == 2 else str(newest - 1)).ids()[-1] == 19
    assert Read(table, tag="tagged").ids()[-1] == 30
    first = lance_core.dataset(table).versions()[0]["timestamp"].astimezone(dt.UTC)
    assert Read(table, timestampAsOf=(first + dt.timedelta(milliseconds=1)).isoformat()).ids()[-1] in (19, 20)
    assert Read(table, versionAsOf="1").ids()[-1] == 19
    with pytest.raises(RefNotFoundError):
        Read(table, branch="nope")
    with pytest.raises(InvalidInputError, match="offset from UTC"):
        Read(table, timestamp="2026-01-01 00:00:00")


def test_the_version_of_a_moment_is_the_last_one_up_to_it(table):
    lance_core.write_dataset(rows(20), table, mode="append")
    committed = lance_core.dataset(table).versions()[-1]["timestamp"].astimezone(dt.UTC)
    assert Read(table, timestamp=committed.isoformat()).ids()[-1] == 20
    assert Read(table, timestamp=(committed - dt.timedelta(microseconds=1)).isoformat()).ids()[-1] == 19
    with pytest.raises(lance_core.errors.VersionNotFoundError, match="there is no version as of"):
        Read(table, timestamp="1999-01-01T00:00:00+01:00")


def test_limits_read_no_more_than_they_need(table):
    lance_core.dataset(table).delete("id in (1, 2, 6)")
    read = Read(table, limit="4")
    assert read.ids() == [0, 3, 4, 5]
    assert sum(one.end - one.start for part in read.parts for one in part.ranges) == 6
    assert Read(table, limit="100").ids() == [0, 3, 4, 5, *range(7, 20)]
    filtered = Read(table, limit="3", filter="id % 5 = 0", split_rows="5")
    assert len(filtered.parts) == 1
    assert filtered.ids() == [0, 5, 10]


def test_system_columns(table):
    dataset = lance_core.dataset(table)
    dataset.update({"s": "'new'"}, where="id = 3")
    names = {"withRowId": "true", "withRowAddress": "true", "withRowVersions": "true"}
    (row,) = Read(table, filter="id = 3", columns='["id"]', **names).rows()
    assert (row["_rowid"], row["_row_created_at_version"], row["_row_last_updated_at_version"]) == (3, 1, 2)
    assert row["_rowaddr"] == 4 << 32
    assert Read(table, "_rowid", "id", filter="_rowid < 2").rows() == [
        {"_rowid": 0, "id": 0},
        {"_rowid": 1, "id": 1},
    ]
    assert Read(table, columns='["_rowid"]', limit="1").rows() == [{"_rowid": 0}]


def test_paths_inside_structs_are_columns(tmp_path):
    uri = str(tmp_path / "t")
    lance_core.write_dataset(pa.table({"a": [{"b": 1, "c": "x"}, None]}), uri)
    assert Read(uri, columns='["a.b"]').rows() == [{"a.b": 1}, {"a.b": None}]


def test_a_column_that_spark_has_no_type_for_hinders_only_who_reads_it(tmp_path):
    uri = str(tmp_path / "t")
    huge = pa.array([1], pa.decimal256(50, 2))
    lance_core.write_dataset(pa.table({"id": [1], "huge": huge}), uri)
    with pytest.raises(UnsupportedError, match="'huge'"):
        Read(uri)
    assert Read(uri, columns='["id"]').ids() == [1]
    assert Read(uri, "id").ids() == [1]


def test_fragments_without_matches_get_no_task(table, monkeypatch):
    monkeypatch.setattr(found_rows, "_MOST_ROWS", 0)  # else the driver reads them
    lance_core.dataset(table).create_scalar_index("id", "ZONEMAP")
    asked = {"split_rows": "5"}
    assert len(Read(table, **asked).parts) == 4
    read = Read(table, filter="id = 7", **asked)
    assert [one.fragment.id for part in read.parts for one in part.ranges] == [1]
    assert read.ids() == [7]
    either = Read(table, filter="id < 2 OR id = 19", **asked)
    assert [one.fragment.id for part in either.parts for one in part.ranges] == [0, 3]
    assert either.ids() == [0, 1, 19]
    assert Read(table, filter="id > 100", **asked).ids() == []


def test_skipping_is_exact_for_nan_and_null(tmp_path):
    uri = str(tmp_path / "t")
    values = pa.array([1.0, float("nan"), None, 2.0, 3.0, None], pa.float64())
    dataset = lance_core.write_dataset(pa.table({"id": range(6), "x": values}), uri, max_rows_per_file=2)
    before = {
        text: Read(uri, filter=text).ids() for text in ("x > 1", "x <= 1", "x IS NULL", "NOT x > 1", "x > 2 OR id = 0")
    }
    dataset.create_scalar_index("x", "ZONEMAP")
    assert {text: Read(uri, filter=text).ids() for text in before} == before
    assert before["x IS NULL"] == [2, 5]
    assert before["x > 2 OR id = 0"] == lance_core.dataset(uri).to_table(filter="x > 2 OR id = 0")["id"].to_pylist()


@pytest.fixture
def num_bytes(monkeypatch):
    """Bytes of local files that were asked for since the last call; they are mapped into memory."""
    counts = []
    inner, inner_announce = local_reader.LocalReader.read_ranges, local_reader.LocalReader.announce

    def read_ranges(self, ranges):
        counts.extend(end - start for start, end in ranges)
        return inner(self, ranges)

    def announce(self, starts, ends):
        told = local_reader._merged(starts, ends) if len(starts) else []  # as the kernel is
        counts.extend(end - start for start, end in told)
        inner_announce(self, starts, ends)

    monkeypatch.setattr(local_reader.LocalReader, "read_ranges", read_ranges)
    monkeypatch.setattr(local_reader.LocalReader, "announce", announce)

    def since():
        total = sum(counts)
        counts.clear()
        return total

    return since


def test_only_what_is_needed_is_read(tmp_path, num_bytes):
    uri = str(tmp_path / "t")
    count = 100_000
    random = np.random.default_rng(7)
    data = {"id": np.arange(count), "x": random.random(count), "y": random.random(count), "z": random.random(count)}
    lance_core.write_dataset(pa.table(data), uri, max_rows_per_file=count // 4)
    lance_core.dataset(uri).create_scalar_index("id", "ZONEMAP")
    size = sum(path.stat().st_size for path in Path(uri, "data").iterdir())
    num_bytes()
    Read(uri).rows()
    assert num_bytes() >= size * 0.95
    Read(uri, columns='["x"]').rows()
    assert num_bytes() < size * 0.5
    assert Read(uri, filter="id = 77777", columns='["id", "x"]').ids() == [77777]
    assert num_bytes() < size * 0.15


def test_of_wide_columns_only_rows_that_match_are_read(tmp_path, num_bytes):
    """Without any index: the column of the condition, and few rows of the others."""
    uri = str(tmp_path / "t")
    count, random = 20_000, np.random.default_rng(7)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(random.random(count * 128, np.float32)), 128)
    lance_core.write_dataset(pa.table({"x": random.random(count), "v": vectors}), uri, max_rows_per_file=count // 2)
    size = sum(path.stat().st_size for path in Path(uri, "data").iterdir())
    num_bytes()
    assert 0 < len(Read(uri, columns='["v"]', filter="x < 0.0005").rows()) < 30
    assert num_bytes() < size * 0.06  # blocks of 16 KiB, to be held against their checksums


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"pushdown": "1"}, InvalidInputError, "'pushdown' must be true or false, got '1'"),
        (
            {"version": "1", "timestamp": "2026-01-01T00:00:00Z"},
            InvalidInputError,
            "'version', 'timestamp' exclude each other",
        ),
        ({"tag": "x", "branch": "y"}, InvalidInputError, "either 'tag' or 'branch'"),
        ({"startingVersion": "1"}, InvalidInputError, "'starting_version' do not apply to a read"),
        ({"skipChangeCommits": "true"}, InvalidInputError, "'skip_change_commits' do not apply"),
        ({"version": "1", "versionAsOf": "2"}, InvalidInputError, "'version' is given twice"),
    ],
)
def test_options_that_make_no_sense_are_refused(table, options, error, message):
    with pytest.raises(error, match=message):
        LanceReader(parse_options(ReadOptions, {"path": table, **options}), numbers("id"))


@pytest.mark.parametrize(
    ("asked", "most"),
    [
        ({"columns": '["id"]'}, 1 << 17),
        ({}, 1 << 14),
        ({"columns": '["id"]', "batch_size": "1000"}, 1000),
    ],
)
def test_batches_of_narrow_columns_have_more_rows(tmp_path, asked, most):
    """Each costs Spark the same, whatever it holds; strings may be long."""
    count = (1 << 17) + 5
    table = pa.table({"id": np.arange(count), "s": pa.array(["x"] * count)})
    lance_core.write_dataset(table, tmp_path / "t")
    read = Read(str(tmp_path / "t"), **asked)
    sizes = [batch.num_rows for part in read.parts for batch in read.reader.read(part)]
    assert sum(sizes) == count
    assert max(sizes) == most


@pytest.mark.parametrize(
    ("first", "then", "batches"),
    [(5, 5, 4), (5, 1000, 1), (1000, 5, 1)],
    ids=["narrow", "wide later on", "wide at first"],
)
def test_several_batches_are_decoded_together_if_they_are_small(tmp_path, monkeypatch, first, then, batches):
    scan, steps = reader.scan_fragment, []

    def counted(fragment, plan, **rows):
        steps.append((plan.batch_size, rows["start"], rows["end"]))
        return scan(fragment, plan, **rows)

    monkeypatch.setattr(reader, "scan_fragment", counted)
    monkeypatch.setattr(reader, "_STEP_BYTES", 1 << 16)
    letters = np.random.default_rng(1).integers(97, 123, (1000, 1000), np.uint8)  # hardly smaller when compressed
    values = [bytes(one[: first if number < 100 else then]).decode() for number, one in enumerate(letters)]
    table = pa.table({"id": np.arange(1000), "s": values})
    lance_core.write_dataset(table, tmp_path / "t")
    read = Read(str(tmp_path / "t"), batch_size="100")
    found = [batch for part in read.parts for batch in read.reader.read(part)]
    assert steps == [(100, 0, 100), (100 * batches, 100, 1000)]
    assert {batch.num_rows for batch in found} == {100}
    assert [row for batch in found for row in batch.to_pylist()] == table.to_pylist()
