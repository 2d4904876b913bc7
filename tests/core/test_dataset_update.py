from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lance_core
from lance_core.change import retries
from lance_core.errors import CommitConflictError, CommitOutcomeUnknownError, InvalidInputError, UnsupportedError

ROWS = pa.table(
    {
        "id": pa.array(range(10), pa.int64()),
        "name": [f"n{i}" for i in range(10)],
        "place": pa.array([{"x": i, "tags": [str(i)] * (i % 3)} for i in range(10)]),
    }
)


@pytest.fixture(params=[False, True], ids=["addresses", "stable"])
def dataset(tmp_path, request):
    return lance_core.write_dataset(ROWS, tmp_path / "t", max_rows_per_file=4, enable_stable_row_ids=request.param)


def rows(dataset):
    return sorted(dataset.to_table().to_pylist(), key=lambda row: row["id"])


def data_files(dataset):
    return len(list(Path(dataset.uri, "data").iterdir()))


def test_matching_rows_move_with_all_their_columns(dataset):
    assert dataset.update({"name": "name || '!'"}, where="id in (1, 5)") == {"num_rows_updated": 2}
    assert dataset.version == 2
    assert dataset.to_table()["id"].to_pylist() == [0, 2, 3, 4, 6, 7, 8, 9, 1, 5]
    expected = [{**row, "name": row["name"] + "!"} if row["id"] in (1, 5) else row for row in ROWS.to_pylist()]
    assert rows(dataset) == expected
    operation = dataset.read_transaction(2).operation
    assert [one.id for one in operation.updated_fragments] == [0, 1]
    assert operation.removed_fragment_ids == []
    assert operation.fields_for_preserving_frag_bitmap == [1]


def test_expressions_see_the_old_values(dataset):
    dataset.update({"id": "id + 100", "name": "cast(id as string)"}, where=pc.field("id") < 2)
    assert [(row["id"], row["name"]) for row in rows(dataset)[-2:]] == [(100, "0"), (101, "1")]


def test_all_rows_of_fragments_can_be_updated(dataset):
    dataset.update({"name": "'x'"})
    assert [one.fragment_id for one in dataset.get_fragments()] == [3]
    assert {row["name"] for row in rows(dataset)} == {"x"}
    assert dataset.read_transaction(2).operation.removed_fragment_ids == [0, 1, 2]


def test_deleted_rows_are_not_updated(dataset):
    dataset.delete("id < 3")
    assert dataset.update({"name": "'x'"}, where="id < 4") == {"num_rows_updated": 1}
    assert dataset.count_rows() == 7


def test_nothing_to_update_is_a_version_without_change(dataset):
    assert dataset.update({"name": "'x'"}, where="id > 100") == {"num_rows_updated": 0}
    assert dataset.version == 2
    assert rows(dataset) == ROWS.to_pylist()


@pytest.mark.parametrize(
    ("updates", "where", "error"),
    [
        ({}, None, InvalidInputError),
        ({"nope": "1"}, None, InvalidInputError),
        ({"ID": "1"}, None, InvalidInputError),
        ({"id": "nope"}, None, InvalidInputError),
        ({"id": "+"}, None, InvalidInputError),
        ({"id": "1"}, "nope = 1", InvalidInputError),
        ({"id": "'x'"}, None, InvalidInputError),
        ({"id": 1}, None, InvalidInputError),
        ({"place.x": "1"}, None, UnsupportedError),
    ],
)
def test_what_does_not_fit_changes_nothing(dataset, updates, where, error):
    before = data_files(dataset)
    with pytest.raises(error):
        dataset.update(updates, where=where)
    assert (dataset.version, dataset.latest_version, data_files(dataset)) == (1, 1, before)


def test_null_where_none_may_be(tmp_path):
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    dataset = lance_core.write_dataset(pa.table({"id": [1, 2]}, schema=schema), tmp_path / "t")
    with pytest.raises(InvalidInputError, match="not nullable"):
        dataset.update({"id": "NULL"})
    assert (dataset.latest_version, data_files(dataset)) == (1, 1)


def test_two_updates_of_different_rows_of_a_fragment_both_count(dataset):
    stale = lance_core.dataset(dataset.uri)
    dataset.update({"name": "'first'"}, where="id = 0")
    stale.update({"name": "'second'"}, where="id = 1", conflict_retries=0)
    assert [row["name"] for row in rows(stale)[:3]] == ["first", "second", "n2"]


def test_two_updates_of_one_row_follow_each_other(dataset):
    stale = lance_core.dataset(dataset.uri)
    dataset.update({"id": "id + 100"}, where="id = 1")
    assert stale.update({"id": "id + 1000"}, where="id = 1 or id = 2") == {"num_rows_updated": 1}
    assert sorted(stale.to_table()["id"].to_pylist()) == [0, 3, 4, 5, 6, 7, 8, 9, 101, 1002]


def test_update_after_compaction_is_worked_out_anew(dataset):
    stale = lance_core.dataset(dataset.uri)
    dataset.optimize.compact_files()
    stale.update({"name": "'x'"}, where="id = 1")
    assert rows(stale)[1]["name"] == "x"
    assert stale.count_rows() == 10


@pytest.mark.parametrize("limits", [{"conflict_retries": 0}, {"retry_timeout": timedelta(seconds=-1)}])
def test_without_retries_a_conflict_leaves_nothing_behind(dataset, limits):
    stale = lance_core.dataset(dataset.uri)
    dataset.update({"name": "'x'"}, where="id = 1")
    files = data_files(dataset)
    with pytest.raises(CommitConflictError):
        stale.update({"name": "'y'"}, where="id = 1", **limits)
    assert (data_files(dataset), dataset.latest_version) == (files, 2)


def test_unknown_outcome_keeps_the_files(dataset, monkeypatch):
    def unknown(*_args, **_kwargs):
        raise CommitOutcomeUnknownError("lost")

    monkeypatch.setattr(retries, "commit", unknown)
    before = data_files(dataset)
    with pytest.raises(CommitOutcomeUnknownError):
        dataset.update({"name": "'y'"}, where="id = 1")
    assert data_files(dataset) == before + 1


def test_negative_retries_are_refused(dataset):
    with pytest.raises(InvalidInputError, match="conflict_retries"):
        dataset.update({"name": "'x'"}, conflict_retries=-1)


def test_text_for_the_history(dataset):
    dataset.update({"name": "'x'"}, transaction_properties={"job": "7"}, commit_message="names")
    assert dataset.read_transaction(2).transaction_properties == {"job": "7", "__lance_commit_message": "names"}
