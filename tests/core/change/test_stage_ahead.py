"""Files are staged while the newest version is looked for, and again if they do not fit it."""

import threading
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

import lance_core
from lance_core.change.completion import Completion
from lance_core.change.delete import removing_staged
from lance_core.change.ingest import is_at_hand
from lance_core.change.stage import FileLimits, stage_data
from lance_core.change.stage_ahead import OutdatedError, Staged, staged_ahead
from lance_core.change.targets import DEFAULT_TARGETS
from lance_core.errors import SchemaMismatchError

ROWS = pa.table({"a": [1, 2]})
LIMITS = FileLimits(max_rows_per_file=100, max_bytes_per_file=1 << 20)


@pytest.fixture
def table(tmp_path):
    return lance_core.write_dataset(ROWS, tmp_path / "t")


def stage(existing, *, data=ROWS):
    target = DEFAULT_TARGETS.of(existing)
    fragments, schema = stage_data(
        target, data, None, table=existing.manifest.schema, limits=LIMITS, data_storage_version="2.2"
    )
    return Staged(
        target=target,
        base=existing,
        fragments=fragments,
        table=schema,
        file_version="2.2",
        completion=Completion(target),
    )


def staged_for_newest(table, find, stage):
    staged = staged_ahead(table.snapshot, find, stage)
    try:
        staged.finish()
    except OutdatedError:
        return staged.moved(stage)
    return staged


def newest(table):
    return lance_core.dataset(table.uri).snapshot


def files(table):
    return {path.name for path in (Path(table.uri) / "data").iterdir()}


def test_both_are_done_at_the_same_time(table):
    is_staged = threading.Event()

    def find():
        assert is_staged.wait(10)
        return newest(table)

    def tell(existing):
        staged = stage(existing)
        is_staged.set()
        return staged

    assert staged_for_newest(table, find, tell).base.version == 1


def test_files_that_fit_the_newest_version_are_for_that(table):
    lance_core.write_dataset(ROWS, table.uri, mode="append")
    before = files(table)
    staged = staged_for_newest(table, partial(newest, table), stage)
    assert staged.base.version == 2
    assert len(files(table) - before) == 1


def test_files_for_a_table_that_was_replaced_are_for_the_new_one(table):
    lance_core.LanceDataset.drop(table.uri)
    lance_core.write_dataset(ROWS, table.uri)
    staged = staged_ahead(table.snapshot, partial(newest, table), stage)
    with pytest.raises(OutdatedError):
        staged.finish()
    assert staged.moved(stage).base.manifest.transaction_file != table.snapshot.manifest.transaction_file


def test_files_for_another_schema_are_replaced(table):
    other = lance_core.dataset(table.uri)
    other.alter_columns({"path": "a", "data_type": pa.int32()})
    before = files(table)
    staged = staged_for_newest(table, partial(newest, table), partial(stage, data=ROWS.cast(other.schema)))
    assert staged.base.version == 2
    assert staged.table.to_arrow() == other.schema
    (fragment,) = staged.fragments
    assert files(table) - before == {fragment.files[0].path}


def test_data_may_fit_the_newest_version_only(table):
    lance_core.dataset(table.uri).add_columns({"b": "a + 1"})
    data = pa.table({"a": [1], "b": [2]})
    assert staged_for_newest(table, partial(newest, table), partial(stage, data=data)).base.version == 2
    data = pa.table({"c": [1]})
    with pytest.raises(SchemaMismatchError, match="'c'"):
        staged_ahead(table.snapshot, partial(newest, table), partial(stage, data=data))


def test_nothing_stays_if_the_newest_version_cannot_be_opened(table):
    before = files(table)

    def find():
        raise ConnectionError("lost")

    staged = staged_ahead(table.snapshot, find, stage)
    with pytest.raises(ConnectionError), removing_staged(staged.target, staged.fragments, staged.completion):
        staged.finish()
    assert files(table) == before


@pytest.mark.parametrize(("data", "expected"), [(ROWS, True), ([{"a": 1}], True), (iter([]), False)])
def test_streams_can_be_read_once_only(data, expected):
    assert is_at_hand(data) is expected
    assert is_at_hand(ROWS.to_reader()) is False
