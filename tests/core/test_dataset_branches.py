"""Branches, clones, base paths, detached versions and keys of commits, through the public names."""

import pickle
import shutil
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

import lance_core
from lance_core import DatasetBasePath, LanceDataset, LanceOperation, Transaction
from lance_core.errors import (
    AlreadyExistsError,
    CommitConflictError,
    CorruptDataError,
    DatasetAlreadyExistsError,
    InvalidInputError,
    NotFoundError,
    RefNotFoundError,
    UnsupportedError,
    VersionNotFoundError,
)


def rows(start, end):
    return pa.table({"x": pa.array(range(start, end))})


def values(dataset):
    return sorted(dataset.to_table()["x"].to_pylist())


def bases(dataset):
    return [fragment.data_files()[0].base_id for fragment in dataset.get_fragments()]


@pytest.fixture
def table(tmp_path):
    dataset = lance_core.write_dataset(rows(0, 10), tmp_path / "t")
    return lance_core.write_dataset(rows(10, 20), dataset, mode="append")


# ------------------------------------------------------------------------------------------------------------- branches


def test_work_on_a_branch(table):
    branch = table.create_branch("feat/a")
    branch = lance_core.write_dataset(rows(20, 30), branch, mode="append")
    branch.delete("x < 5")
    branch.optimize.compact_files()
    assert values(branch) == list(range(5, 30))
    assert (branch.branch, branch.uri) == ("feat/a", f"{table.uri}/tree/feat/a")
    assert values(lance_core.dataset(table.uri)) == list(range(20))
    by_address = lance_core.dataset(branch.uri)
    assert (by_address.branch, by_address.version) == ("feat/a", branch.version)
    written = lance_core.write_dataset(rows(30, 31), table.uri, mode="append", branch="feat/a")
    assert written.version == branch.version + 1
    assert values(pickle.loads(pickle.dumps(written))) == list(range(5, 31))  # noqa: S301 our own
    branch.checkout_latest()
    assert branch.version == written.version == branch.latest_version
    assert table.latest_version == 2


def test_branches_in_memory():
    dataset = lance_core.write_dataset(rows(0, 2), "memory://branches of a test")
    branch = lance_core.write_dataset(rows(2, 3), dataset.create_branch("a/b"), mode="append")
    assert values(branch) == [0, 1, 2]
    assert values(lance_core.dataset(branch.uri)) == [0, 1, 2]
    assert values(lance_core.dataset(dataset.uri)) == [0, 1]


def test_a_dataset_in_a_folder_called_tree(tmp_path):
    dataset = lance_core.write_dataset(rows(0, 2), tmp_path / "tree" / "a")
    branch = lance_core.write_dataset(rows(2, 3), dataset.create_branch("b"), mode="append")
    assert (dataset.branch, branch.branch) == (None, "b")
    assert values(lance_core.dataset(branch.uri)) == [0, 1, 2]


def test_ways_to_name_a_version(table):
    branch = lance_core.write_dataset(rows(20, 21), table.create_branch("b"), mode="append")
    branch.tags.create("on-branch")
    table.tags.create("old", 1)
    assert values(table.checkout_version(("b", 2))) == list(range(20))
    assert values(table.checkout_version(("b", None))) == list(range(21))
    assert values(branch.checkout_version(("main", 1))) == list(range(10))
    assert values(branch.checkout_version((None, None))) == list(range(20))
    assert values(branch.checkout_version("old")) == list(range(10))
    assert branch.checkout_version(2).branch == "b"
    assert lance_core.dataset(table.uri, "on-branch").branch == "b"
    assert lance_core.dataset(table.uri, ("b", 3)).version == 3
    assert lance_core.dataset(table.uri, branch="b").version == 3
    assert lance_core.dataset(table.uri, 2, branch="b").version == 2
    with pytest.raises(InvalidInputError):
        lance_core.dataset(table.uri, "old", branch="b")
    with pytest.raises(RefNotFoundError):
        lance_core.dataset(table.uri, branch="none")
    with pytest.raises(VersionNotFoundError):
        lance_core.dataset(table.uri, ("b", 9))
    table.tags.update("old", ("b", None))
    assert table.tags.list()["old"] | {"created_at": 0, "updated_at": 0, "manifest_size": 0} == {
        "branch": "b", "version": 3, "created_at": 0, "updated_at": 0, "manifest_size": 0, "metadata": {}
    }  # fmt: skip


def test_lists_of_refs(table):
    table.create_branch("b", 1)
    table.create_branch("a", 1)
    table.create_branch("c")
    assert [name for name, _ in table.branches.list_ordered()] == ["c", "a", "b"]
    assert [name for name, _ in table.branches.list_ordered("asc")] == ["a", "b", "c"]
    with pytest.raises(InvalidInputError):
        table.branches.list_ordered("up")
    table.branches.replace_metadata("a", {"k": "v"})
    entry = table.branches.list()["a"]
    assert (entry["parent_branch"], entry["parent_version"], entry["metadata"]) == (None, 1, {"k": "v"})
    table.tags.create("t", 1)
    table.tags.create("u", 2)
    assert [name for name, _ in table.tags.list_ordered()] == ["u", "t"]
    table.tags.replace_metadata("t", {"why": "kept"})
    assert table.tags.list()["t"]["metadata"] == {"why": "kept"}
    table.branches.delete("a")
    assert set(table.branches.list()) == {"b", "c"}


def test_moved_with_its_branches(table, tmp_path):
    branch = lance_core.write_dataset(rows(20, 30), table.create_branch("a"), mode="append")
    branch = lance_core.write_dataset(rows(30, 40), branch.create_branch("b"), mode="append")
    branch.delete("x = 15")
    shutil.move(table.uri, tmp_path / "moved")
    moved = lance_core.dataset(tmp_path / "moved", branch="b")
    assert values(moved) == [x for x in range(40) if x != 15]
    moved.delete("x = 3")
    assert moved.count_rows() == 38


# --------------------------------------------------------------------------------------------------------------- clones


def test_shallow_clone(table, tmp_path):
    table.delete("x = 3")
    clone = table.shallow_clone(tmp_path / "c", 3)
    assert (clone.version, values(clone)) == (3, values(table))
    assert not (tmp_path / "c" / "data").exists()
    clone.delete("x = 4")
    clone = lance_core.write_dataset(rows(50, 60), clone, mode="append")
    assert values(clone) == [x for x in (*range(20), *range(50, 60)) if x not in {3, 4}]
    assert clone.shallow_clone(tmp_path / "d").count_rows() == clone.count_rows()
    assert values(lance_core.dataset(table.uri)) == [x for x in range(20) if x != 3]
    with pytest.raises(DatasetAlreadyExistsError):
        table.shallow_clone(tmp_path / "c", 1)
    shutil.rmtree(table.uri)
    with pytest.raises(NotFoundError):
        lance_core.dataset(tmp_path / "c").to_table()


def test_deep_clone(table, tmp_path):
    branch = lance_core.write_dataset(rows(20, 30), table.create_branch("a"), mode="append")
    branch.delete("x % 7 = 0")
    clone = branch.deep_clone(tmp_path / "c")
    expected = values(branch)
    shutil.rmtree(table.uri)
    clone = lance_core.dataset(tmp_path / "c")
    assert values(clone) == expected
    assert (clone.base_paths(), clone.branch) == ({}, None)
    with pytest.raises(AlreadyExistsError):
        clone.deep_clone(tmp_path / "c")


def test_deep_clone_leaves_nothing_behind_when_a_file_is_missing(table, tmp_path):
    (tmp_path / "t" / "data" / table.get_fragments()[1].data_files()[0].path).unlink()
    with pytest.raises(NotFoundError):
        table.deep_clone(tmp_path / "c")
    assert not [path for path in (tmp_path / "c").rglob("*") if path.is_file()]


# ----------------------------------------------------------------------------------------------------------- base paths


def test_hot_and_cold(tmp_path):
    places = [
        DatasetBasePath(str(tmp_path / "hot"), "hot", is_dataset_root=True),
        DatasetBasePath(str(tmp_path / "cold"), "cold"),
    ]
    dataset = lance_core.write_dataset(
        rows(0, 10), tmp_path / "t", initial_bases=places, target_bases=["hot", "cold"], max_rows_per_file=2
    )
    assert bases(dataset) == [1, 2, 1, 2, 1]
    assert len(list((tmp_path / "hot" / "data").iterdir())) == 3
    assert len([path for path in (tmp_path / "cold").iterdir() if path.is_file()]) == 2
    dataset = lance_core.write_dataset(rows(10, 20), dataset, mode="append", target_all_bases=True, max_rows_per_file=3)
    assert bases(dataset)[5:] == [None, 1, 2, None]
    dataset.add_bases([DatasetBasePath(str(tmp_path / "more"))])
    staged = lance_core.write_fragments(rows(20, 25), dataset, target_bases=[str(tmp_path / "more")])
    dataset = LanceDataset.commit(dataset, LanceOperation.Append(staged), read_version=dataset.version)
    assert bases(dataset)[-1] == 3
    assert values(dataset) == list(range(25))
    dataset.delete("x < 3")
    dataset.optimize.compact_files()
    assert (bases(dataset), values(dataset)) == ([None], list(range(3, 25)))


def test_base_paths_that_are_refused(tmp_path):
    place = DatasetBasePath(str(tmp_path / "b"), "b")
    dataset = lance_core.write_dataset(rows(0, 1), tmp_path / "t", initial_bases=[place])
    assert dataset.base_paths() == {1: DatasetBasePath(str(tmp_path / "b"), "b", id=1)}
    with pytest.raises(InvalidInputError, match="new datasets"):
        lance_core.write_dataset(rows(0, 1), dataset, mode="append", initial_bases=[place])
    with pytest.raises(InvalidInputError, match="no base path 'none'"):
        lance_core.write_dataset(rows(0, 1), dataset, mode="append", target_bases=["none"])
    with pytest.raises(InvalidInputError, match="not both"):
        lance_core.write_dataset(rows(0, 1), dataset, mode="append", target_bases=["b"], target_all_bases=True)
    for twice in (DatasetBasePath(str(tmp_path / "b")), DatasetBasePath("/x", "b"), DatasetBasePath("/x", "x", id=1)):
        with pytest.raises(InvalidInputError, match="two base paths"):
            dataset.add_bases([twice])
    for wrong in ("https://example.com/x", "http://127.0.0.1/x"):
        with pytest.raises(UnsupportedError):
            dataset.add_bases([DatasetBasePath(wrong)])
    for wrong in ("", " ", "a\nb", "a\0b"):
        with pytest.raises((InvalidInputError, CorruptDataError)):
            dataset.add_bases([DatasetBasePath(wrong)])
    assert dataset.version == lance_core.dataset(tmp_path / "t").version == 1


def test_failing_writes_leave_nothing_in_other_places(tmp_path):
    place = DatasetBasePath(str(tmp_path / "b"), "b")
    dataset = lance_core.write_dataset(rows(0, 1), tmp_path / "t", initial_bases=[place])

    def batches():
        yield from rows(0, 4).to_batches()
        raise KeyError("broken source")

    with pytest.raises(KeyError):
        lance_core.write_dataset(
            batches(), dataset, schema=rows(0, 1).schema, mode="append", target_bases=["b"], max_rows_per_file=2
        )
    assert not [path for path in (tmp_path / "b").rglob("*") if path.is_file()]


def test_two_writers_add_one_name(tmp_path):
    dataset = lance_core.write_dataset(rows(0, 1), tmp_path / "t")
    stale = lance_core.dataset(tmp_path / "t")
    dataset.add_bases([DatasetBasePath(str(tmp_path / "a"), "n")])
    with pytest.raises(CommitConflictError):
        stale.add_bases([DatasetBasePath(str(tmp_path / "b"), "n")])
    stale.add_bases([DatasetBasePath(str(tmp_path / "b"), "m")])
    assert sorted(stale.base_paths()) == [1, 2]


def test_clean_up_spares_files_that_a_base_path_inside_the_dataset_names(tmp_path):
    inside = DatasetBasePath(str(tmp_path / "t" / "data"), "inside")
    dataset = lance_core.write_dataset(rows(0, 5), tmp_path / "t", initial_bases=[inside], target_bases=["inside"])
    dataset.delete("x = 1")
    dataset.cleanup_old_versions(older_than=timedelta(0), delete_unverified=True, force=True)
    assert values(lance_core.dataset(tmp_path / "t")) == [0, 2, 3, 4]


# ------------------------------------------------------------------------------------------------- commits of all kinds


def test_detached(table):
    staged = lance_core.write_fragments(rows(20, 25), table)
    detached = LanceDataset.commit(table, LanceOperation.Append(staged), read_version=2, detached=True)
    assert detached.version >> 63 == 1
    assert values(detached) == list(range(25))
    assert table.latest_version == 2
    assert [entry["version"] for entry in table.versions()] == [1, 2]
    assert values(lance_core.dataset(table.uri, detached.version)) == list(range(25))
    again = lance_core.write_fragments(rows(30, 31), table)
    on_top = LanceDataset.commit(table, LanceOperation.Append(again), read_version=detached.version, detached=True)
    assert values(on_top) == [*range(25), 30]
    with pytest.raises(InvalidInputError, match="detached"):
        LanceDataset.commit(table, LanceOperation.Append(again), read_version=detached.version)
    with pytest.raises(InvalidInputError, match="detached"):
        detached.create_branch("b")
    table.cleanup_old_versions(older_than=timedelta(0), delete_unverified=True, force=True)
    assert values(lance_core.dataset(table.uri, on_top.version)) == [*range(25), 30]
    detached.restore()
    assert (detached.version, values(detached)) == (3, list(range(25)))


def test_detached_commits_do_not_create(tmp_path):
    operation = LanceOperation.Overwrite(pa.schema([pa.field("x", pa.int64())]), [])
    with pytest.raises(UnsupportedError, match="create"):
        LanceDataset.commit(tmp_path / "t", operation, detached=True)
    assert not (tmp_path / "t").exists()


def test_batch(table):
    staged = [lance_core.write_fragments(rows(n, n + 2), table) for n in (20, 30)]
    transactions = [
        Transaction(read, LanceOperation.Append(one), transaction_properties={"who": "me"})
        for read, one in zip((2, 1), staged, strict=True)
    ]
    result = LanceDataset.commit_batch(table, transactions)
    assert values(result["dataset"]) == [*range(22), 30, 31]
    assert (result["dataset"].version, result["merged"].read_version) == (3, 1)
    assert result["dataset"].read_transaction(3).transaction_properties == {"who": "me"}
    with pytest.raises(InvalidInputError, match="'transactions' is empty"):
        LanceDataset.commit_batch(table, [])
    with pytest.raises(UnsupportedError, match="Restore"):
        LanceDataset.commit_batch(table, [Transaction(1, LanceOperation.Restore(1))])
    different = [Transaction(1, LanceOperation.Append([]), transaction_properties={"who": who}) for who in "ab"]
    with pytest.raises(InvalidInputError, match="who"):
        LanceDataset.commit_batch(table, different)


def test_a_key_commits_once(table):
    first = lance_core.write_dataset(rows(20, 21), table, mode="append", idempotency_key="job 1")
    lance_core.write_dataset(rows(30, 31), table, mode="append")
    again = lance_core.write_dataset(rows(20, 21), table, mode="append", idempotency_key="job 1")
    assert (first.version, again.version, table.latest_version) == (3, 3, 4)
    assert table.find_commit("job 1") == 3
    assert table.find_commit("job 1", after=3) is None
    assert table.find_commit("job 2") is None
    staged = lance_core.write_fragments(rows(40, 41), table)
    for _ in range(2):
        done = LanceDataset.commit(table, LanceOperation.Append(staged), read_version=4, idempotency_key="job 2")
        assert done.version == 5
    assert values(lance_core.dataset(table.uri)) == [*range(21), 30, 40]


def test_a_key_creates_and_overwrites_once(tmp_path):
    for _ in range(2):
        assert lance_core.write_dataset(rows(0, 3), tmp_path / "t", idempotency_key="make").version == 1
    for _ in range(2):
        written = lance_core.write_dataset(rows(0, 4), tmp_path / "t", mode="overwrite", idempotency_key="again")
        assert written.version == 2
    with pytest.raises(DatasetAlreadyExistsError):
        lance_core.write_dataset(rows(0, 3), tmp_path / "t", idempotency_key="other")
    operation = LanceOperation.Overwrite(pa.schema([pa.field("x", pa.int64())]), [])
    versions = [LanceDataset.commit(tmp_path / "t", operation, idempotency_key="empty").version for _ in range(2)]
    assert versions == [3, 3]


def test_timeouts_are_positive(table):
    for wrong in (timedelta(0), timedelta(seconds=-1), 5):
        with pytest.raises(InvalidInputError, match="timeout"):
            LanceDataset.commit(table, LanceOperation.Append([]), read_version=2, commit_timeout=wrong)
    assert LanceDataset.commit(table, LanceOperation.Append([]), read_version=2, commit_timeout=None).version == 3


def test_operations_by_name(table):
    fragment = table.get_fragment(0).metadata
    staged = lance_core.write_fragments(rows(100, 110), table)[0]
    operations = [
        LanceOperation.DataReplacement([LanceOperation.DataReplacementGroup(0, staged.files[0])]),
        LanceOperation.UpdateConfig(
            config_updates=LanceOperation.UpdateMap({"k": "v"}),
            field_metadata_updates={0: LanceOperation.UpdateMap({"f": "g"}, replace=True)},
        ),
        LanceOperation.CreateIndex([lance_core.Index("00000000-0000-0000-0000-000000000001", "i", [0], 2, {1}, 0)], []),
        LanceOperation.ReserveFragments(3),
        LanceOperation.UpdateBases([DatasetBasePath("/somewhere", "s")]),
        LanceOperation.Delete([], [1], "true"),
        LanceOperation.Restore(2),
    ]
    for operation in operations:
        table = LanceDataset.commit(table, operation, read_version=table.version, commit_message="one of all")
        found = table.read_transaction(table.version)
        assert found.transaction_properties == {"__lance_commit_message": "one of all"}
        assert type(found.operation) is type(operation)
        if not isinstance(operation, LanceOperation.CreateIndex | LanceOperation.UpdateBases):
            assert found.operation == operation
    assert table.get_fragment(0).metadata == fragment
    assert [type(one.operation).__name__ for one in table.get_transactions(3)] == ["Restore", "Delete", "UpdateBases"]
    clone = (True, None, 1, "/x", None)
    with pytest.raises(InvalidInputError, match="Clone"):
        LanceDataset.commit(table, LanceOperation.Clone(*clone), read_version=table.version)
    wrong = lance_core.Index("x", "i", [0], 2, {1}, 0)
    with pytest.raises(InvalidInputError, match="UUID"):
        LanceDataset.commit(table, LanceOperation.CreateIndex([wrong], []), read_version=table.version)


# -------------------------------------------------------------------------------------------------------------- history


def test_history_without_reading_it(table):
    assert table.version_refs() == [{"version": 1}, {"version": 2}]
    assert table.get_version() == table.versions()[1]
    assert table.get_version()["metadata"]["total_rows"] == "20"


def test_as_of(table):
    first, second = (entry["timestamp"] for entry in table.versions())
    just_after = timedelta(microseconds=1)
    assert lance_core.dataset(table.uri, asof=first + just_after).version == 1
    assert lance_core.dataset(table.uri, asof=second + just_after).version == 2
    assert lance_core.dataset(table.uri, asof=(second + just_after).astimezone(UTC)).version == 2
    assert lance_core.dataset(table.uri, asof=second.isoformat()).version == 1
    assert lance_core.dataset(table.uri, 2, asof=first + just_after).version == 2
    with pytest.raises(VersionNotFoundError, match="no version as of"):
        lance_core.dataset(table.uri, asof=first)
    with pytest.raises(InvalidInputError, match="point in time"):
        lance_core.dataset(table.uri, asof="yesterday")
    branch = table.create_branch("b")
    assert lance_core.dataset(table.uri, asof=datetime.now(UTC) + just_after, branch="b").uri == branch.uri


def test_migration_to_names_of_scheme_v2(tmp_path):
    dataset = lance_core.write_dataset(rows(0, 1), tmp_path / "t", enable_v2_manifest_paths=False)
    for n in range(1, 12):
        dataset = lance_core.write_dataset(rows(n, n + 1), dataset, mode="append")
    folder = tmp_path / "t" / "_versions"
    assert (folder / "12.manifest").exists()
    shutil.copy(folder / "1.manifest", folder / f"{2**64 - 2:020d}.manifest")  # an earlier run was interrupted
    with pytest.raises(CorruptDataError, match="both naming schemes"):
        lance_core.dataset(tmp_path / "t")
    for _ in range(2):
        dataset.migrate_manifest_paths_v2()
    assert {len(path.name) for path in folder.glob("*.manifest")} == {29}
    assert values(lance_core.dataset(tmp_path / "t")) == list(range(12))
    assert lance_core.write_dataset(rows(12, 13), tmp_path / "t", mode="append").version == 13


def test_settings(table):
    assert table.update_config({"a": "1", "b": "2"}) == {"a": "1", "b": "2"}
    table.delete_config_keys(["a", "absent"])
    assert table.config() == {"b": "2"}
