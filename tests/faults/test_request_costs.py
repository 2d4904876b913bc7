"""What kinds of work ask of an object store, as docs/object-stores.md tells under "Requests"."""

import re
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import lance_core

PAGE = (Path(__file__).parents[2] / "docs" / "object-stores.md").read_text()
NUM_FILES = 4
ROWS = pa.table({"a": range(400), "s": [f"row {number}" for number in range(400)]})


@pytest.fixture
def table(s3):
    """A table of four small files; the process has committed to the bucket before."""
    uri, options = f"{s3.uri}/t.lance", s3.storage_options
    lance_core.write_dataset(ROWS, uri, max_rows_per_file=100, storage_options=options)
    return lance_core.dataset(uri, storage_options=options)


@pytest.fixture
def asked(s3, table):  # noqa: ARG001 - what was asked for it is not counted
    """Counts what was asked for since the last time, by kind."""

    def asked():
        return Counter(
            "delete" if "delete" in path.partition("?")[2] else "list" if "list-type" in path else method
            for method, path in s3.requests()
        )

    asked()
    return asked


def upsert(table):
    rows = pa.table({"a": [5, 1000], "s": ["x", "y"]})
    table.merge_insert("a").when_matched_update_all().when_not_matched_insert_all().execute(rows)


ALL_FILES = {"GET": NUM_FILES}
COMMIT = {"PUT": 2, "list": 2}
WORKS = {
    "open the newest version": (
        lambda table: lance_core.dataset(table.uri, storage_options=table.storage_options),
        [{"list": 1, "GET": 1}],
    ),
    "scan, filter or take, for each file of at most 1 MiB": (lambda table: table.to_table(), [ALL_FILES]),
    "append": (lambda table: table.insert(ROWS), [{"PUT": 3, "list": 3, "GET": 1}]),
    "delete, besides reading the condition's columns": (
        lambda table: table.delete("a in (5, 105)"),
        [ALL_FILES, COMMIT, {"PUT": 2}],
    ),
    "update or merge, besides reading": (upsert, [ALL_FILES, COMMIT, {"PUT": 2}]),
    "compaction, besides reading": (
        lambda table: table.optimize.compact_files(),
        [ALL_FILES, COMMIT, {"PUT": 1, "HEAD": 1}],
    ),
    "build a B-tree, besides reading its column": (
        lambda table: table.create_scalar_index("a", "BTREE"),
        [ALL_FILES, COMMIT, {"PUT": 2}],
    ),
    "create a tag": (lambda table: table.tags.create("first", 1), [{"PUT": 1, "HEAD": 2}]),
}


@pytest.mark.parametrize("work", WORKS)
def test_works_ask_for_what_the_page_tells(table, asked, work):
    do, expected = WORKS[work]
    do(table)
    assert asked() == sum(map(Counter, expected), Counter())
    assert f"\n| {work} | " in PAGE


def test_going_back_to_a_version_that_is_open_keeps_it_by_a_tag_meanwhile(table, asked):
    old = table.checkout_version(1)
    table.insert(ROWS)
    asked()
    old.restore()
    assert asked() == {"PUT": 3, "HEAD": 1, "GET": 2, "list": 3, "delete": 1}
    assert "\n| restore a version that is open | 3 PUT, 1 HEAD, 2 GET, 3 lists, 1 delete |" in PAGE


def test_what_was_read_is_not_read_again(table, asked):
    table.to_table()
    asked()
    table.take([1, 300])
    assert table.count_rows("a > 7") == 392
    assert not asked()


def test_deletion_files_are_read_each_time(table, asked):
    table.delete("a in (5, 105)")
    asked()
    for _ in range(2):  # the data files are those that the deletion has open
        table.to_table()
        assert asked() == {"GET": 2}


def test_tags_are_listed_with_one_request_more_than_there_are(table, asked):
    for number in range(3):
        table.tags.create(f"tag{number}", 1)
    asked()
    table.tags.list()
    assert asked() == {"list": 1, "GET": 3}


def test_a_clean_up_reads_each_manifest_and_deletes_in_batches(table, asked):
    for number in range(5):
        table.update_config({"number": str(number)})
    table.to_table()
    asked()
    assert table.cleanup_old_versions(older_than=timedelta(0)).old_versions == 5
    counts = asked()
    told = re.search(r"\n\| clean-up \| (\d+) lists, 1 GET for each version", PAGE)
    assert counts == {"list": int(told[1]), "GET": 6, "delete": 2}


@pytest.mark.parametrize(("kind", "num_read"), [("ZONEMAP", 0), ("BLOOMFILTER", 0), ("BTREE", 2)])
def test_index_builds_read_only_the_deletion_files_they_need(s3, table, kind, num_read):
    table.delete("a in (5, 105)")
    list(s3.requests())
    table.create_scalar_index("a", kind)
    read = [path for method, path in s3.requests() if method == "GET" and "/_deletions/" in path]
    assert len(read) == num_read
    assert table.count_rows("a in (5, 106)") == 1
