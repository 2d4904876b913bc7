"""Our commits and pylance's on one table of an S3 service."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from datetime import timedelta

import lance
import pyarrow as pa
import pytest

import lance_core

CONTEXT = multiprocessing.get_context("forkserver")
COMMITS = 4


@pytest.fixture
def table(s3):
    return f"{s3.uri}/folder/t.lance"


def rows(*numbers):
    return pa.table({"a": pa.array(numbers, pa.int64()), "s": [f"row {number}" for number in numbers]})


def test_both_write_in_turns(s3, table):
    options = s3.storage_options
    lance.write_dataset(rows(0), table, storage_options=options)
    for number in range(1, 7):
        package = (lance_core, lance)[number % 2]
        package.write_dataset(rows(number), table, mode="append", storage_options=options)
    ours, theirs = (package.dataset(table, storage_options=options) for package in (lance_core, lance))
    assert ours.version == theirs.version == 7
    assert ours.to_table() == theirs.to_table() == rows(*range(7))

    ours.delete("a = 3")
    ours.tags.create("tagged", 3)
    theirs = lance.dataset(table, storage_options=options)
    assert theirs.to_table() == rows(0, 1, 2, 4, 5, 6)
    assert lance.dataset(table, version="tagged", storage_options=options).version == 3

    theirs.delete("a = 4")
    theirs.tags.create("theirs", 2)
    ours.checkout_latest()
    assert ours.to_table() == rows(0, 1, 2, 5, 6)
    assert ours.checkout_version("theirs").to_table() == rows(0, 1)

    assert ours.optimize.compact_files().fragments_added == 1
    theirs.checkout_latest()
    assert theirs.to_table() == rows(0, 1, 2, 5, 6)
    assert [fragment.fragment_id for fragment in theirs.get_fragments()] == [
        fragment.fragment_id for fragment in ours.get_fragments()
    ]
    assert [one["version"] for one in ours.versions()] == [one["version"] for one in theirs.versions()]


def test_clean_up_leaves_what_pylance_needs(s3, table):
    options = s3.storage_options
    for number in range(4):
        lance_core.write_dataset(rows(number), table, mode="overwrite", storage_options=options)
    ours = lance_core.dataset(table, storage_options=options)
    ours.tags.create("kept", 2)
    stats = ours.cleanup_old_versions(older_than=timedelta(0), error_if_tagged_old_versions=False)
    assert stats.old_versions == 2
    theirs = lance.dataset(table, storage_options=options)
    assert [one["version"] for one in theirs.versions()] == [2, 4]
    assert theirs.to_table() == rows(3)
    assert theirs.checkout_version("kept").to_table() == rows(1)


def test_addresses_mean_the_same(s3):
    options = s3.storage_options
    for address in (f"{s3.uri}/a%20b/t.lance", f"{s3.uri}/ü c/100%25/t"):
        lance.write_dataset(rows(1), address, storage_options=options)
        ours = lance_core.dataset(address, storage_options=options)
        assert ours.to_table() == rows(1)
        assert lance_core.dataset(ours.uri, storage_options=options).uri == ours.uri
    lance_core.write_dataset(rows(2), f"s3a://{s3.uri[5:]}/other/", storage_options=options)
    assert lance.dataset(f"{s3.uri}/other", storage_options=options).to_table() == rows(2)


def append(name, uri, options, writer):
    package = {"ours": lance_core, "theirs": lance}[name]
    for number in range(COMMITS):
        package.write_dataset(rows(100 * writer + number), uri, mode="append", storage_options=options)


def test_appends_at_the_same_time_lose_nothing(s3, table):
    lance_core.write_dataset(rows(-1), table, storage_options=s3.storage_options)
    writers = ["ours", "theirs", "ours"]
    with ProcessPoolExecutor(len(writers), mp_context=CONTEXT) as pool:
        running = [pool.submit(append, name, table, s3.storage_options, number) for number, name in enumerate(writers)]
        for one in running:
            one.result(timeout=120)
    expected = [-1, *(100 * writer + number for writer in range(len(writers)) for number in range(COMMITS))]
    for package in (lance_core, lance):
        dataset = package.dataset(table, storage_options=s3.storage_options)
        assert dataset.version == len(expected)
        assert sorted(dataset.to_table().column("a").to_pylist()) == expected


@pytest.mark.parametrize("mode", ["after-500", "after-drop"])
def test_pylance_agrees_on_commits_whose_answer_got_lost(s3, table, mode):
    lance_core.write_dataset(rows(0), table, storage_options=s3.storage_options)
    s3.fail("PUT", ".manifest", mode)
    assert lance_core.write_dataset(rows(1), table, mode="append", storage_options=s3.storage_options).version == 2
    theirs = lance.dataset(table, storage_options=s3.storage_options)
    assert theirs.version == 2
    assert theirs.to_table() == rows(0, 1)


@pytest.mark.spark
def test_spark_reads_and_writes(s3, table, new_session):
    from lance_core.spark import read_lance, register, write_lance  # noqa: PLC0415 - only here

    spark = new_session()
    register(spark)
    frame = spark.range(0, 100, 1, 3).selectExpr("id AS a", "concat('row ', id) AS s")
    result = write_lance(frame, table, mode="create", storage_options=s3.storage_options)
    assert (result.version, result.num_rows) == (1, 100)
    write_lance(frame, table, mode="append", storage_options=s3.storage_options)
    back = read_lance(spark, table, storage_options=s3.storage_options, filter="a < 10")
    assert sorted(row.a for row in back.collect()) == sorted([*range(10)] * 2)
    assert lance.dataset(table, storage_options=s3.storage_options).count_rows() == 200
