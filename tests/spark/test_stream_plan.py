import pyarrow as pa
import pytest
from pyspark.sql import types as st

import lance_core
from lance_core.errors import InvalidInputError, RefNotFoundError, UnsupportedError, VersionNotFoundError
from lance_core.spark.common.options import parse_options
from lance_core.spark.common.read_options import ReadOptions
from lance_core.spark.reading.stream_plan import Limits, Position, first_position
from lance_core.spark.reading.stream_source import LanceStreamReader

SCHEMA = st.StructType([st.StructField("id", st.LongType())])


def rows(*numbers):
    return pa.table({"id": pa.array(numbers, pa.int64()), "s": [f"row {number}" for number in numbers]})


class Stream:
    """What Spark does with a stream, without Spark."""

    def __init__(self, uri, **options):
        self.options = parse_options(ReadOptions, {"path": uri, **options})
        self.restart()
        self.offset = self.reader.initialOffset()

    def restart(self, **options):
        if options:
            self.options = parse_options(ReadOptions, {"path": self.options.path, **options})
        self.reader = LanceStreamReader(self.options, None, SCHEMA)

    def batch(self):
        end = self.reader.latestOffset(self.offset, self.reader.getDefaultReadLimit())
        first, again = (self.reader.partitions(self.offset, end) for _ in range(2))
        assert first == again  # a batch can be read again
        self.offset = end
        return sorted(i for part in first for batch in self.reader.read(part) for i in batch["id"].to_pylist())

    def rest(self):
        found, before = [], None
        while before != self.offset:
            before = self.offset
            found.append(self.batch())
        return [batch for batch in found if batch]


@pytest.fixture
def table(tmp_path):
    uri = str(tmp_path / "t")
    lance_core.write_dataset(rows(1, 2, 3, 4), uri, max_rows_per_file=3)
    return uri


def append(uri, *numbers):
    return lance_core.write_dataset(rows(*numbers), uri, mode="append")


def test_the_whole_table_then_what_is_added(table):
    lance_core.dataset(table).delete("id = 2")
    stream = Stream(table)
    append(table, 5)
    assert stream.rest() == [[1, 3, 4, 5]]
    append(table, 6)
    append(table, 7, 8)
    assert stream.rest() == [[6, 7, 8]]
    assert stream.rest() == []


def test_maintenance_adds_no_rows(table):
    stream = Stream(table)
    stream.rest()
    dataset = lance_core.dataset(table)
    dataset.optimize.compact_files()
    dataset.update_config({"a": "b"})
    dataset.add_columns({"more": "id + 1"})
    dataset.create_scalar_index("id", "ZONEMAP")
    assert dataset.version >= 5
    new = rows(5).append_column("more", pa.array([6], pa.int64()))
    lance_core.write_dataset(new, table, mode="append")
    assert stream.rest() == [[5]]


def test_a_batch_is_as_large_as_allowed(table):
    append(table, *range(10, 20))
    stream = Stream(table, maxRowsPerBatch="3")
    lance_core.dataset(table).delete("id = 11")
    stream.restart(maxRowsPerBatch="3", skipChangeCommits="true")
    assert stream.rest() == [[1, 2, 3], [4, 10, 11], [12, 13, 14], [15, 16, 17], [18, 19]]


def test_bytes_bound_a_batch_too(table):
    for number in range(5):
        append(table, *range(number * 1000, number * 1000 + 1000))
    stream = Stream(table, max_bytes_per_batch="9000")
    batches = stream.rest()
    assert len(batches) > 3
    assert sum(map(len, batches)) == 5004
    assert len(Stream(table, max_bytes_per_batch="1").batch()) == 1


def test_where_a_stream_begins(table):
    append(table, 5)
    lance_core.dataset(table).tags.create("five", 2)
    append(table, 6)
    assert Stream(table, startingVersion="five").rest() == [[5, 6]]
    assert Stream(table, starting_version="3").rest() == [[6]]
    assert Stream(table, starting_version="earliest").rest() == [[1, 2, 3, 4, 5, 6]]
    now = Stream(table, starting_version="latest")
    assert now.rest() == []
    moment = lance_core.dataset(table).versions()[-1]["timestamp"]
    later = Stream(table, starting_timestamp=moment.astimezone().isoformat())
    append(table, 7)
    assert now.rest() == [[7]]
    assert later.rest() == [[6, 7]]
    with pytest.raises(InvalidInputError, match="'starting_version' is 9, but the newest version is 4"):
        Stream(table, starting_version="9")
    with pytest.raises(RefNotFoundError):
        Stream(table, starting_version="nope")


def overwrite(dataset):
    lance_core.write_dataset(rows(7), dataset.uri, mode="overwrite")


def change_some(dataset):
    dataset.update({"s": "'new'"}, where="id = 1")


def upsert(dataset):
    job = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    job.execute(rows(4, 9))


CHANGES = [
    (lambda dataset: dataset.delete("id = 1"), {"ignoreDeletes": "true"}, []),
    (lambda dataset: dataset.delete("id = 1"), {"ignoreChanges": "true"}, []),
    (lambda dataset: dataset.delete("id = 1"), {"skipChangeCommits": "true"}, []),
    (change_some, {"ignoreChanges": "true"}, [1]),
    (change_some, {"skipChangeCommits": "true"}, []),
    (upsert, {"ignoreChanges": "true"}, [4, 9]),
    (upsert, {"skipChangeCommits": "true"}, []),
    (overwrite, {"ignoreChanges": "true"}, [7]),
    (
        overwrite,
        {"skipChangeCommits": "true"},
        [],
    ),
    (lambda dataset: dataset.reopened(1).restore(), {"skipChangeCommits": "true"}, []),
]


@pytest.mark.parametrize(("change", "options", "expected"), CHANGES)
def test_changes_of_rows_stop_a_stream_unless_it_is_said_what_to_do(table, change, options, expected):
    stream = Stream(table)
    stream.rest()
    append(table, 5)
    stream.rest()
    change(lance_core.dataset(table))
    with pytest.raises(UnsupportedError, match="version 3 changed or deleted rows"):
        stream.batch()
    append(table, 20)
    stream.restart(**options)
    assert stream.rest() == [[*expected, 20]]


def test_updates_need_more_than_ignored_deletes(table):
    stream = Stream(table, ignoreDeletes="true")
    stream.rest()
    change_some(lance_core.dataset(table))
    with pytest.raises(UnsupportedError, match=r"\(Update\)"):
        stream.batch()


def test_a_merge_that_only_inserts_is_no_change(table):
    stream = Stream(table)
    stream.rest()
    lance_core.dataset(table).merge_insert("id").when_not_matched_insert_all().execute(rows(4, 9))
    assert stream.rest() == [[9]]


def test_a_version_that_was_cleaned_up_is_missed(table):
    stream = Stream(table)
    stream.rest()
    append(table, 5)
    append(table, 6)
    lance_core.dataset(table).cleanup_old_versions(retain_versions=1, delete_unverified=True, force=True)
    with pytest.raises(VersionNotFoundError, match="version 2, the next one of this stream, has been cleaned up"):
        stream.batch()


def test_a_column_that_becomes_another_one_ends_the_stream(table):
    stream = Stream(table, starting_version="1")
    dataset = lance_core.dataset(table)
    dataset.alter_columns({"path": "id", "data_type": pa.int32()})
    lance_core.write_dataset(rows(5).cast(dataset.schema), table, mode="append")
    with pytest.raises(InvalidInputError, match="version 3 has no column 'id' like that of version 1"):
        stream.rest()


def test_rows_and_deletions_of_other_branches_do_not_count(table):
    lance_core.dataset(table).create_branch("dev", 1)
    branch = lance_core.dataset(table, branch="dev")
    stream = Stream(table, branch="dev", starting_version="latest")
    append(table, 5)
    lance_core.write_dataset(rows(6), branch.uri, mode="append")
    assert stream.rest() == [[6]]


def test_available_now_reads_what_there_is_now(table):
    stream = Stream(table)
    stream.reader.prepareForTriggerAvailableNow()
    append(table, 5)
    assert stream.rest() == [[1, 2, 3, 4]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"version": "1"}, "'version' do not apply to a stream"),
        ({"readChangeFeed": "true"}, "'read_change_feed' do not apply to a stream"),
        ({"startingVersion": "1", "startingTimestamp": "2026-01-01T00:00:00Z"}, "not both"),
        ({"startingTimestamp": "2026-01-01"}, "point in time with its offset"),
    ],
)
def test_options_that_make_no_sense_are_refused(table, options, message):
    with pytest.raises(InvalidInputError, match=message):
        Stream(table, **options)


def test_a_position_is_written_down_and_read_again():
    position = Position(version=3, row=5, is_snapshot=True)
    assert Position.from_json(position.to_json()) == position
    with pytest.raises(InvalidInputError, match="not an offset of a Lance stream"):
        Position.from_json({"offset": 1})


def test_limits_default_to_none(table):
    assert Limits() == Limits(max_rows=None, max_bytes=None)
    options = parse_options(ReadOptions, {"path": table})
    assert first_position(lance_core.dataset(table).snapshot.store, options) == Position(version=1, is_snapshot=True)
