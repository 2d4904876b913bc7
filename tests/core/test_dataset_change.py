from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lance_core
from lance_core.change import delete as change
from lance_core.change import retries
from lance_core.errors import CommitConflictError, CommitOutcomeUnknownError, InvalidInputError, UnsupportedError

N = 1000
ROWS = pa.table({"id": range(N), "day": [i // 100 for i in range(N)]})


@pytest.fixture
def dataset(tmp_path):
    return lance_core.write_dataset(ROWS, tmp_path / "t", max_rows_per_file=250)


def ids(dataset):
    return sorted(dataset.to_table()["id"].to_pylist())


def files(dataset, folder):
    path = Path(dataset.uri, folder)
    return sorted(one.name for one in path.iterdir()) if path.is_dir() else []


def before_first_commit(monkeypatch, action):
    """Let something happen after the work is done and before it is committed, once."""
    real = retries.commit
    done = []

    def racing(*args, **kwargs):
        if not done:
            done.append(True)
            action()
        return real(*args, **kwargs)

    monkeypatch.setattr(retries, "commit", racing)


def test_delete_marks_rows_and_drops_empty_fragments(dataset):
    assert dataset.delete("id < 250 or id = 300") == {"num_deleted_rows": 251}
    assert dataset.version == 2
    assert ids(dataset) == [i for i in range(250, N) if i != 300]
    assert [one.fragment_id for one in dataset.get_fragments()] == [1, 2, 3]
    operation = dataset.read_transaction(2).operation
    assert operation.deleted_fragment_ids == [0]
    assert [one.id for one in operation.updated_fragments] == [1]
    assert operation.predicate == "id < 250 or id = 300"
    assert len(files(dataset, "_deletions")) == 1
    assert dataset.checkout_version(1).count_rows() == N


def test_deletes_add_up(dataset):
    dataset.delete("id = 1")
    dataset.delete(pc.field("id") == 2)
    assert dataset.delete("id < 5") == {"num_deleted_rows": 3}
    assert dataset.get_fragment(0).num_deletions == 5
    assert dataset.delete("true")["num_deleted_rows"] == N - 5
    assert (dataset.count_rows(), dataset.get_fragments()) == (0, [])
    assert dataset.delete("true") == {"num_deleted_rows": 0}


def test_delete_of_unknown_rows_is_a_version_without_change(dataset):
    assert dataset.delete("id > 10000") == {"num_deleted_rows": 0}
    assert (dataset.version, dataset.count_rows()) == (2, N)


def test_large_deletions_become_bitmaps(tmp_path):
    dataset = lance_core.write_dataset(pa.table({"id": range(10_000)}), tmp_path / "t")
    dataset.delete("id < 4999")
    assert files(dataset, "_deletions")[0].endswith(".arrow")
    dataset.delete("id = 9000")
    assert sorted(name[-4:] for name in files(dataset, "_deletions")) == [".bin", "rrow"]
    assert ids(dataset) == [i for i in range(4999, 10_000) if i != 9000]


@pytest.mark.parametrize("condition", ["nope = 1", "id = 'x'", "id", "id / 0 = 1"])
def test_a_delete_that_fails_leaves_nothing(dataset, condition):
    with pytest.raises(InvalidInputError):
        dataset.delete(condition)
    assert (dataset.version, dataset.latest_version, files(dataset, "_deletions")) == (1, 1, [])


def test_a_failure_in_a_late_fragment_removes_the_deletion_files(tmp_path):
    rows = pa.table({"id": [1, 2, 3, 4], "d": [1, 1, 1, 0]})
    dataset = lance_core.write_dataset(rows, tmp_path / "t", max_rows_per_file=2)
    with pytest.raises(InvalidInputError, match="divide by zero"):
        dataset.delete("id / d = 1")
    assert files(dataset, "_deletions") == []


def test_delete_beside_another_delete_in_the_same_fragment(dataset, monkeypatch):
    before_first_commit(monkeypatch, lambda: lance_core.dataset(dataset.uri).delete("id = 7"))
    assert dataset.delete("id = 8") == {"num_deleted_rows": 1}
    assert dataset.version == 3
    assert ids(dataset) == [i for i in range(N) if i not in (7, 8)]


def test_delete_of_rows_that_another_delete_took_is_worked_out_anew(dataset, monkeypatch):
    before_first_commit(monkeypatch, lambda: lance_core.dataset(dataset.uri).delete("id in (7, 8)"))
    assert dataset.delete("id in (8, 9)") == {"num_deleted_rows": 1}
    assert ids(dataset) == [i for i in range(N) if i not in (7, 8, 9)]


def test_delete_after_a_compaction_is_worked_out_anew(dataset, monkeypatch):
    before_first_commit(monkeypatch, lance_core.dataset(dataset.uri).optimize.compact_files)
    assert dataset.delete("id = 999") == {"num_deleted_rows": 1}
    assert dataset.read_transaction(3).read_version == 2
    assert ids(dataset) == list(range(999))
    assert len(files(dataset, "_deletions")) == 1


def test_without_retries_the_conflict_is_told(dataset, monkeypatch):
    before_first_commit(monkeypatch, lance_core.dataset(dataset.uri).optimize.compact_files)
    with pytest.raises(CommitConflictError) as caught:
        dataset.delete("id = 999", conflict_retries=0)
    assert caught.value.is_retryable
    assert (dataset.version, dataset.latest_version) == (1, 2)
    assert files(dataset, "_deletions") == []


def test_replace_where_is_one_version(dataset):
    new = pa.table({"id": [5000, 5001], "day": [3, 3]})
    answer = dataset.replace_where("day = 3", new, transaction_properties={"partition": "3"}, commit_message="again")
    assert answer == {"num_deleted_rows": 100, "num_inserted_rows": 2}
    assert dataset.version == 2
    assert ids(dataset) == [i for i in range(N) if i // 100 != 3] + [5000, 5001]
    transaction = dataset.read_transaction(2)
    assert transaction.transaction_properties == {"partition": "3", "__lance_commit_message": "again"}
    assert type(transaction.operation).__name__ == "Update"
    assert len(transaction.operation.new_fragments) == 1


def test_replace_where_again_gives_the_same_rows(dataset):
    new = pa.table({"id": [5000, 5001], "day": [3, 3]})
    for _ in range(3):
        dataset.replace_where("day = 3", new)
    assert ids(dataset) == [i for i in range(N) if i // 100 != 3] + [5000, 5001]


def test_replace_where_with_nothing_or_for_nothing(dataset):
    dataset.replace_where("day = 3", [])
    assert dataset.count_rows() == N - 100
    dataset.replace_where("day = 3", ROWS.filter(pc.field("day") == 3))
    assert ids(dataset) == list(range(N))
    dataset.replace_where("true", ROWS.slice(0, 5))
    assert ids(dataset) == [0, 1, 2, 3, 4]


def test_replace_where_takes_fragments_written_elsewhere(dataset):
    staged = lance_core.write_fragments(pa.table({"id": [7000], "day": [9]}), dataset)
    assert dataset.replace_where("day = 9", staged) == {"num_deleted_rows": 100, "num_inserted_rows": 1}
    assert ids(dataset) == [*range(900), 7000]


def test_replace_where_checks_before_it_writes(dataset):
    data = files(dataset, "data")
    with pytest.raises(InvalidInputError, match="nope"):
        dataset.replace_where("nope = 1", ROWS)
    with pytest.raises(InvalidInputError, match="does not fit"):
        dataset.replace_where("day = 1", pa.table({"id": ["x"]}))
    assert files(dataset, "data") == data
    assert dataset.latest_version == 1


def test_replace_where_keeps_its_data_when_worked_out_anew(dataset, monkeypatch):
    before_first_commit(monkeypatch, lance_core.dataset(dataset.uri).optimize.compact_files)
    dataset.replace_where("day = 3", pa.table({"id": [5000], "day": [3]}))
    assert ids(dataset) == [i for i in range(N) if i // 100 != 3] + [5000]
    assert len(files(dataset, "data")) == 4 + 1 + 1


def test_of_two_writers_that_replace_the_same_rows_the_later_one_wins(dataset, monkeypatch):
    theirs = pa.table({"id": [9001, 9002], "day": [3, 3]})
    other = lance_core.dataset(dataset.uri)
    before_first_commit(monkeypatch, lambda: other.replace_where("day = 3", theirs))
    replaced = dataset.replace_where("day = 3", pa.table({"id": [9003], "day": [3]}))
    assert replaced == {"num_deleted_rows": 2, "num_inserted_rows": 1}
    assert dataset.to_table(filter="day = 3")["id"].to_pylist() == [9003]
    assert len(ids(dataset)) == N - 100 + 1
    assert len(files(dataset, "_deletions")) == 1  # theirs; what was worked out in vain is gone


def test_replace_where_takes_rows_appended_meanwhile(dataset, monkeypatch):
    late = pa.table({"id": [7777], "day": [3]})
    before_first_commit(monkeypatch, lambda: lance_core.write_dataset(late, dataset.uri, mode="append"))
    dataset.replace_where("day = 3", pa.table({"id": [8888], "day": [3]}))
    assert dataset.to_table(filter="day = 3")["id"].to_pylist() == [8888]
    assert dataset.read_transaction(dataset.version).read_version == 2


def test_working_out_anew_looks_only_at_what_changed(dataset, monkeypatch):
    looked = []
    real = change.each_match

    def look(files, fragments, plan, do):
        asked = list(fragments)
        looked.extend(fragment.id for fragment in asked)
        return real(files, asked, plan, do)

    monkeypatch.setattr(change, "each_match", look)
    late = pa.table({"id": [7777], "day": [3]})
    before_first_commit(monkeypatch, lambda: lance_core.write_dataset(late, dataset.uri, mode="append"))
    dataset.replace_where("day = 3", pa.table({"id": [8888], "day": [3]}))
    assert looked == [0, 1, 2, 3, 4]


def test_replace_where_that_cannot_be_merged_removes_what_it_staged(dataset, monkeypatch):
    data = files(dataset, "data")
    before_first_commit(monkeypatch, lambda: lance_core.write_dataset(ROWS.slice(0, 0), dataset.uri, mode="overwrite"))
    with pytest.raises(CommitConflictError):
        dataset.replace_where("day = 3", pa.table({"id": [5000], "day": [3]}))
    assert files(dataset, "data") == data
    assert files(dataset, "_deletions") == []


def test_files_stay_when_the_outcome_is_unknown(dataset, monkeypatch):
    def unknown(*_args, **_kwargs):
        raise CommitOutcomeUnknownError("the store is silent")

    monkeypatch.setattr(retries, "commit", unknown)
    with pytest.raises(CommitOutcomeUnknownError):
        dataset.replace_where("day = 3", pa.table({"id": [5000], "day": [3]}))
    assert len(files(dataset, "data")) == 5
    assert len(files(dataset, "_deletions")) == 1


def test_operations_travel_through_the_history(dataset):
    rows = lance_core.write_fragments(ROWS, dataset)
    first = dataset.get_fragment(0).metadata
    operations = lance_core.LanceOperation
    committed = lance_core.LanceDataset.commit(dataset, operations.Update([0], [], rows), read_version=1)
    assert committed.count_rows() == N - 250 + N
    assert committed.read_transaction(2).operation.removed_fragment_ids == [0]
    with pytest.raises(CommitConflictError):
        lance_core.LanceDataset.commit(dataset, operations.Delete([], [0], "x"), read_version=1)
    lance_core.LanceDataset.commit(dataset, operations.Restore(1))
    overwrite = operations.Overwrite(committed.lance_schema, [first])
    assert lance_core.LanceDataset.commit(dataset, overwrite).count_rows() == 250
    with pytest.raises(UnsupportedError, match="indices"):
        lance_core.LanceDataset.commit(dataset, operations.Rewrite([], ["index"]), read_version=1)
    with pytest.raises(InvalidInputError, match="LanceOperation"):
        lance_core.LanceDataset.commit(dataset, "append", read_version=1)
    with pytest.raises(InvalidInputError, match="update_mode"):
        lance_core.LanceDataset.commit(dataset, operations.Update(update_mode="x"), read_version=1)


def test_stable_row_ids_survive_deletes_and_compaction(tmp_path):
    dataset = lance_core.write_dataset(ROWS, tmp_path / "t", enable_stable_row_ids=True, max_rows_per_file=300)
    assert dataset.has_stable_row_ids
    dataset.delete("id % 5 = 0")
    dataset = lance_core.write_dataset(pa.table({"id": [2000], "day": [0]}), dataset, mode="append")
    before = dataset.to_table(columns=["id"], with_row_id=True).sort_by("id")
    assert before["_rowid"].to_pylist() == [i for i in range(N) if i % 5] + [N]
    assert dataset.optimize.compact_files().fragments_added == 1
    assert dataset.to_table(columns=["id"], with_row_id=True).sort_by("id").equals(before)
    moved = dataset.replace_where("id = 2000", pa.table({"id": [2001], "day": [0]}))
    assert moved["num_deleted_rows"] == 1
    assert dataset.to_table(columns=["_rowid"], filter="id = 2001")["_rowid"].to_pylist() == [N + 1]


def test_explaining_a_clean_up_deletes_nothing_and_tells_what_would_go(dataset):
    dataset.delete("id < 300")
    told = dataset.explain_cleanup_old_versions(older_than=timedelta(0), retain_versions=1)
    assert [told.stats.old_versions, told.stats.data_files_removed] == [1, 1]
    assert dataset.checkout_version(1).count_rows() == N
    assert dataset.cleanup_old_versions(older_than=timedelta(0), retain_versions=1) == told.stats
