"""Our commits and pylance's on one table of S3 whose versions are decided by DynamoDB."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import lance
import pyarrow as pa
import pytest

import lance_core

pytestmark = pytest.mark.usefixtures("short_pauses")
CONTEXT = multiprocessing.get_context("forkserver")
COMMITS = 4


@pytest.fixture
def table(dynamo):
    return dynamo.at("folder/t.lance")


def rows(*numbers):
    return pa.table({"a": pa.array(numbers, pa.int64()), "s": [f"row {number}" for number in numbers]})


def test_both_write_in_turns(dynamo, table):
    options = dynamo.storage_options
    lance.write_dataset(rows(0), table, storage_options=options)
    for number in range(1, 5):
        package = (lance_core, lance)[number % 2]
        package.write_dataset(rows(number), table, mode="append", storage_options=options)
    ours, theirs = (package.dataset(table, storage_options=options) for package in (lance_core, lance))
    assert ours.version == theirs.version == 5
    assert ours.to_table() == theirs.to_table() == rows(*range(5))
    found = dynamo.rows("folder/t.lance")
    names = {version: f"folder/t.lance/_versions/{2**64 - 1 - version:020d}.manifest" for version in range(1, 6)}
    assert {version: path for version, (path, _) in found.items()} == names

    ours.delete("a = 3")
    ours.tags.create("tagged", 3)
    theirs = lance.dataset(table, storage_options=options)
    assert theirs.to_table() == rows(0, 1, 2, 4)
    assert lance.dataset(table, version="tagged", storage_options=options).version == 3
    theirs.delete("a = 4")
    ours.checkout_latest()
    assert ours.to_table() == rows(0, 1, 2)
    assert ours.optimize.compact_files().fragments_added == 1
    assert lance.dataset(table, storage_options=options).to_table() == rows(0, 1, 2)
    assert lance_core.dataset(ours.uri, storage_options=options).version == ours.version
    plain = f"{dynamo.uri}/folder/t.lance"
    assert lance.dataset(plain, storage_options=dynamo.storage_options).version == ours.version


@pytest.mark.parametrize(("stopped", "repairs"), [(lance, lance_core), (lance_core, lance)])
def test_what_one_left_undone_the_other_finishes(dynamo, table, stopped, repairs):
    """The table was reached, and then no request came through that would write the manifest's final name."""
    options = {**dynamo.storage_options, "client_max_retries": "0"}
    lance_core.write_dataset(rows(0), table, storage_options=options)
    stopped.write_dataset(rows(1), table, mode="append", storage_options=options)
    client, key = dynamo.dynamo_client(), "folder/t.lance"
    name = f"_versions/{2**64 - 1 - 2:020d}.manifest"
    staged = f"{name}-d3b07384-d113-4ec4-95d5-5e5f6a3c1b11"
    store = lance_core.dataset(f"{dynamo.uri}/{key}", storage_options=s3_only(options)).snapshot.store
    store.put(staged, store.get(name))
    store.delete([name])
    client.update_item(
        TableName=dynamo.table,
        Key={"base_uri": {"S": key}, "version": {"N": "2"}},
        UpdateExpression="SET #p = :p",
        ExpressionAttributeNames={"#p": "path"},
        ExpressionAttributeValues={":p": {"S": f"{key}/{staged}"}},
    )
    assert lance.dataset(f"{dynamo.uri}/{key}", storage_options=s3_only(options)).version == 1
    dataset = repairs.dataset(table, storage_options=options)
    assert dataset.version == 2
    assert dataset.to_table() == rows(0, 1)
    assert dynamo.rows(key)[2][0] == f"{key}/{name}"
    assert store.names("_versions") == sorted(store.names("_versions"))
    assert not [one for one in store.names("_versions") if not one.endswith(".manifest")]
    stopped.write_dataset(rows(2), table, mode="append", storage_options=options)
    assert repairs.dataset(table, storage_options=options).to_table() == rows(0, 1, 2)


def s3_only(options):
    return {key: value for key, value in options.items() if key != "dynamodb_endpoint"}


def append(name, uri, options, writer):
    package = {"ours": lance_core, "theirs": lance}[name]
    for number in range(COMMITS):
        package.write_dataset(rows(100 * writer + number), uri, mode="append", storage_options=options)


def test_appends_at_the_same_time_lose_nothing(dynamo, table):
    lance_core.write_dataset(rows(-1), table, storage_options=dynamo.storage_options)
    writers = ["ours", "theirs", "ours"]
    with ProcessPoolExecutor(len(writers), mp_context=CONTEXT) as pool:
        running = [
            pool.submit(append, name, table, dynamo.storage_options, number) for number, name in enumerate(writers)
        ]
        for one in running:
            one.result(timeout=120)
    expected = [-1, *(100 * writer + number for writer in range(len(writers)) for number in range(COMMITS))]
    for package in (lance_core, lance):
        dataset = package.dataset(table, storage_options=dynamo.storage_options)
        assert dataset.version == len(expected)
        assert sorted(dataset.to_table().column("a").to_pylist()) == expected


@pytest.mark.parametrize("mode", ["after-500", "after-drop", "before-500"])
@pytest.mark.parametrize("where", ["DynamoDB_20120810.PutItem", ".manifest"])
def test_answers_that_get_lost(dynamo, table, mode, where):
    options = dynamo.storage_options
    lance_core.write_dataset(rows(0), table, storage_options=options)
    dynamo.fail("", where, mode)
    assert lance_core.write_dataset(rows(1), table, mode="append", storage_options=options).version == 2
    theirs = lance.dataset(table, storage_options=options)
    assert theirs.version == 2
    assert theirs.to_table() == rows(0, 1)


def test_branches(dynamo, table):
    options = dynamo.storage_options
    ours = lance_core.write_dataset(rows(0), table, storage_options=options)
    ours.create_branch("mine")
    theirs = lance.dataset(table, storage_options=options).create_branch("theirs")
    for branch in ("mine", "theirs"):
        for number in (1, 2):
            here = lance_core.dataset(table, branch=branch, storage_options=options)
            lance_core.write_dataset(rows(10 + number), here, mode="append")
            theirs = lance.dataset(table, storage_options=options).checkout_version((branch, None))
            theirs.insert(rows(20 + number))
        expected = rows(0, 11, 21, 12, 22)
        assert lance_core.dataset(table, branch=branch, storage_options=options).to_table() == expected
        assert lance.dataset(table, storage_options=options).checkout_version((branch, None)).to_table() == expected
        assert sorted(dynamo.rows(f"folder/t.lance/tree/{branch}")) == [1, 2, 3, 4, 5]
    assert lance.dataset(table, storage_options=options).count_rows() == 1
