"""Commits that a table decides: who wins, what others repair, what is damaged."""

import subprocess
import sys

import pytest

from lance_core.errors import CorruptDataError, InvalidInputError, NotFoundError
from lance_core.store.cloud.s3_options import parse_s3_options
from lance_core.store.dynamodb import DynamoTable
from lance_core.store.external_manifest import ExternalManifestStore
from lance_core.store.memory import MemoryStore
from lance_core.store.open import open_store
from lance_core.store.sqlite_table import SqliteTable
from lance_core.store.version_table import VersionRow
from lance_core.table.commit import commit
from lance_core.table.snapshot import find_newest, list_versions, open_snapshot
from lance_core.testing.tables import append, create, read_rows

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("short_pauses")]

BASE = "folder/t.lance"


def path_of(version):
    return f"_versions/{2**64 - 1 - version:020d}.manifest"


def staged(version, name="0" * 36):
    return VersionRow(version=version, path=f"{path_of(version)}-{name}", size=3)


@pytest.fixture(params=["sqlite", "dynamodb"])
def table(request, tmp_path):
    if request.param == "sqlite":
        return SqliteTable(str(tmp_path / "versions.db"))
    dynamo = request.getfixturevalue("dynamo")
    options = {key: value for key, value in dynamo.storage_options.items() if key != "dynamodb_endpoint"}
    return DynamoTable(dynamo.table, parse_s3_options(options), endpoint=dynamo.endpoint)


@pytest.fixture
def store(table):
    return ExternalManifestStore(MemoryStore(), table, base=BASE)


# ------------------------------------------------------------------------------------------------------------- tables


def test_rows_are_created_once(table):
    assert table.find(BASE, 1) is table.find(BASE, None) is None
    assert table.create(BASE, staged(1))
    assert not table.create(BASE, staged(1, "1" * 36))
    assert table.create("other", staged(7))
    assert table.create(BASE, staged(2))
    assert table.find(BASE, 1) == staged(1)
    assert table.find(BASE, None) == staged(2)
    assert table.find(BASE, 3) is None
    assert table.find(BASE, 2**64 - 1) is None


def test_rows_change_only_from_what_was_seen(table):
    table.create(BASE, staged(1))
    final = VersionRow(version=1, path=path_of(1), size=3)
    table.settle(BASE, final, staged="something else")
    table.settle("nothing", final, staged=path_of(1))
    assert table.find(BASE, 1) == staged(1)
    assert table.find("nothing", None) is None
    table.settle(BASE, final, staged=staged(1).path)
    assert table.find(BASE, 1) == final
    table.remove(BASE, staged(1))
    assert table.find(BASE, 1) == final
    table.remove(BASE, final)
    table.remove(BASE, final)
    assert table.find(BASE, None) is None


def test_processes_race_for_rows(tmp_path):
    command = [sys.executable, "-c", CLAIM, str(tmp_path / "versions.db")]
    running = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for one in running:
        assert one.stdout.readline() == "ready\n"
    for one in running:
        one.stdin.close()
    won = [one.stdout.read().split() for one in running]
    assert [one.wait(timeout=60) for one in running] == [0, 0]
    for one in running:
        one.stdout.close()
    assert sorted(int(number) for numbers in won for number in numbers) == list(range(1, 21))


# Does without this module's imports, and waits until all have started.
CLAIM = """
import os, sys
from lance_core.store.sqlite_table import SqliteTable
from lance_core.store.version_table import VersionRow

print("ready", flush=True)
sys.stdin.read()
for number in range(1, 21):
    row = VersionRow(version=number, path=f"_versions/{number}.manifest-{os.getpid():036d}", size=3)
    if SqliteTable(sys.argv[1]).create("t", row):
        print(number)
"""


# ------------------------------------------------------------------------------------------------------------ commits


def test_a_commit_leaves_final_names_only(store, table):
    commit(store, create(store, [1, 2]))
    commit(store, append(store, [3], read_version=1, uuid="second"))
    assert table.find(BASE, None).path == path_of(2)
    assert sorted(store._inner.names("_versions")) == sorted(path_of(version)[10:] for version in (1, 2))
    assert read_rows(open_snapshot(store)) == read_rows(open_snapshot(store._inner)) == [1, 2, 3]


def crash_after_claim(store, table, version, data=None):
    """What a writer leaves that stops after it won."""
    row = staged(version)
    if data is not None:
        store._inner.put(row.path, data)
    assert table.create(BASE, row)


@pytest.fixture
def crashed(store, table):
    """Version 2 was claimed, and is only staged."""
    commit(store, create(store, [1, 2]))
    aside = ExternalManifestStore(MemoryStore(), SqliteTable(":memory:"), base="x")._inner
    for info in list(store._inner.list("_versions")) + list(store._inner.list("data")):
        aside.put(info.path, store._inner.get(info.path))
    commit(aside, append(aside, [3], read_version=1, uuid="crashed"))
    for info in list(aside.list("data")):
        store._inner.put(info.path, aside.get(info.path))
    crash_after_claim(store, table, 2, aside.get(path_of(2)))
    return store


@pytest.mark.parametrize(
    "look",
    [
        find_newest,
        open_snapshot,
        lambda store: open_snapshot(store, 2),
        list_versions,
        lambda store: commit(store, append(store, [4], read_version=1, uuid="next")),
    ],
    ids=["newest", "open", "open 2", "list", "commit"],
)
def test_the_next_who_looks_finishes_it(crashed, table, look):
    assert list_versions(crashed._inner) == [1]
    look(crashed)
    assert table.find(BASE, 2).path == path_of(2)
    assert list_versions(crashed._inner)[:2] == [1, 2]
    assert not [name for name in crashed._inner.names("_versions") if not name.endswith(".manifest")]
    assert read_rows(open_snapshot(crashed, 2)) == [1, 2, 3]


def test_several_finish_at_the_same_time(crashed, table):
    """Another process does all steps after we have read the row."""
    row = table.find(BASE, 2)
    crashed._finish("", row)
    assert crashed._finish("", row) == crashed._inner.get(path_of(2))
    assert table.find(BASE, 2).path == path_of(2)


def test_a_lost_manifest_is_told(store, table):
    commit(store, create(store, [1, 2]))
    crash_after_claim(store, table, 2)
    for look in (lambda: open_snapshot(store), lambda: open_snapshot(store, 2), lambda: list_versions(store)):
        with pytest.raises(CorruptDataError, match="version 2 was committed"):
            look()
    assert read_rows(open_snapshot(store, 1)) == [1, 2]


def test_rows_of_a_deleted_dataset_are_told(store):
    commit(store, create(store, [1, 2]))
    store._inner.delete([path_of(1)])
    with pytest.raises(CorruptDataError, match="delete its rows"):
        find_newest(store)


@pytest.mark.parametrize(
    "path",
    ["../x.manifest", "_versions/1.manifest/../../x", "data/x", path_of(3), f"{path_of(2)}-a/b", "", "_versions/x"],
)
def test_rows_cannot_lead_elsewhere(store, table, path):
    commit(store, create(store, [1, 2]))
    table.create(BASE, VersionRow(version=2, path=path, size=1))
    with pytest.raises(CorruptDataError):
        open_snapshot(store)


def test_withdrawing_the_newest_version_frees_its_number(store, table):
    commit(store, create(store, [1, 2]))
    commit(store, append(store, [3], read_version=1, uuid="second"))
    store.delete([path_of(1)])
    assert table.find(BASE, 1) is not None, "old numbers are never given again"
    assert not store.put_if_absent(path_of(1), b"x")
    store.delete([path_of(2)])
    assert table.find(BASE, None).version == 1


def test_repeated_requests_are_recognised(store, table, monkeypatch):
    """The row was created, the answer got lost, and the repeated request says that it exists."""
    create_row = table.create
    monkeypatch.setattr(type(table), "create", lambda _, base, row: create_row(base, row) and False)
    assert store.put_if_absent(path_of(1), b"abc")
    assert store.get(path_of(1)) == b"abc"

    def and_finished(_, base, row):
        create_row(base, row)
        store._finish("", row)
        return False

    monkeypatch.setattr(type(table), "create", and_finished)
    assert store.put_if_absent(path_of(2), b"abcd")
    monkeypatch.undo()
    assert not store.put_if_absent(path_of(2), b"other")


def test_branches_have_rows_of_their_own(store, table):
    commit(store, create(store, [1, 2]))
    path = f"tree/a/b/{path_of(2)}"
    assert store.put_if_absent(path, b"one")
    assert not store.put_if_absent(path, b"two")
    assert table.find(f"{BASE}/tree/a/b", None) == VersionRow(version=2, path=path_of(2), size=3)
    assert table.find(BASE, None).version == 1
    store._inner.put(f"tree/a/b/{staged(3).path}", b"xyz")
    table.create(f"{BASE}/tree/a/b", staged(3))
    assert sorted(store.names("tree/a/b/_versions")) == [path_of(3)[10:], path_of(2)[10:]]
    assert store.get(f"tree/a/b/{path_of(3)}") == b"xyz"
    store.delete([f"tree/a/b/{path_of(3)}"])
    assert table.find(f"{BASE}/tree/a/b", None).version == 2


def test_what_is_no_version_goes_past_the_table(store, table):
    detached = f"_versions/d{2**63 + 5}.manifest"
    assert store.put_if_absent(detached, b"x")
    assert not store.put_if_absent(detached, b"y")
    assert store.put_if_absent("_refs/tags/a.json", b"x")
    assert table.find(BASE, None) is None
    assert table.find(f"{BASE}/_refs/tags/a.json", 1) is None


def test_tags_where_the_store_cannot_do_it(tmp_path):
    store = open_store(f"local://{tmp_path}/t", {"manifest_store": f"sqlite://{tmp_path}/versions.db"})
    assert store.put_if_absent("_refs/tags/a.json", b"one")
    assert not store.put_if_absent("_refs/tags/a.json", b"two")
    assert store.get("_refs/tags/a.json") == b"one"
    store.delete(["_refs/tags/a.json"])
    assert store.put_if_absent("_refs/tags/a.json", b"three")
    assert store.names("_refs/tags") == ["a.json"]


# ---------------------------------------------------------------------------------------------------- services, options


def test_a_wrong_table_is_refused(dynamo):
    client = dynamo.dynamo_client()
    client.create_table(
        TableName="wrong",
        KeySchema=[{"AttributeName": "base_uri", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "base_uri", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    for name, error in (("wrong", InvalidInputError), ("missing", NotFoundError)):
        uri = f"s3+ddb://{dynamo.uri[5:]}/t?ddbTableName={name}"
        with pytest.raises(error, match=name):
            open_store(uri, dynamo.storage_options).names("_versions")
    client.delete_table(TableName="wrong")


def test_errors_of_the_service_have_names(dynamo):
    store = open_store(dynamo.at("t"), {**dynamo.storage_options, "client_max_retries": "0"})
    assert store.names("_versions") == []
    for mode, error in (("before-500", ConnectionError), ("before-403", PermissionError), ("before-drop", OSError)):
        dynamo.fail("POST", "DynamoDB", mode)
        with pytest.raises(error):
            store.names("_versions")
    dynamo.fail("POST", "DynamoDB", "before-503")
    assert open_store(dynamo.at("t"), dynamo.storage_options).names("_versions") == []


@pytest.mark.parametrize("target", ["s3+ddb://b/x", "s3+ddb://b/x?ddbTableName=", "s3+ddb://b/x?ddbTableName=t&a=b"])
def test_addresses_name_one_table(target):
    with pytest.raises(InvalidInputError, match="ddbTableName"):
        open_store(target)


@pytest.mark.parametrize(
    "table", ["", "versions.db", "sqlite://relative.db", "sqlite:///", "postgres://x", "sqlite:///a/"]
)
def test_the_option_names_a_file(tmp_path, table):
    with pytest.raises(InvalidInputError, match="manifest_store"):
        open_store(tmp_path / "t", {"manifest_store": table})
    with pytest.raises(InvalidInputError, match="manifest_store"):
        open_store("s3+ddb://b/x?ddbTableName=t", {"manifest_store": "sqlite:///x.db"})


def test_a_file_that_is_no_database(tmp_path):
    (tmp_path / "versions.db").write_bytes(b"something else " * 100)
    store = open_store(tmp_path / "t", {"manifest_store": f"sqlite://{tmp_path}/versions.db"})
    with pytest.raises(CorruptDataError, match=r"versions\.db"):
        store.names("_versions")
    missing = open_store(tmp_path / "t", {"manifest_store": f"sqlite://{tmp_path}/missing/versions.db"})
    assert missing.names("_versions") == [], "reading creates nothing"
    with pytest.raises(ConnectionError, match="missing"):
        missing.put_if_absent(path_of(1), b"x")


def test_secrets_are_not_shown(dynamo):
    options = {**dynamo.storage_options, "aws_secret_access_key": "hidden-in-the-options"}
    store = open_store(dynamo.at("t"), options)
    assert "hidden" not in repr(store)
    dynamo.fail("POST", "DynamoDB", "before-403", times=9)
    with pytest.raises(PermissionError) as caught:
        store.names("_versions")
    assert "hidden" not in str(caught.value)
    assert dynamo.table in str(caught.value)
