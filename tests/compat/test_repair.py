"""Repairs: a table is damaged in one way, the plan states what is lost, and pylance opens the result."""

import datetime as dt
import json
import os
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import InvalidInputError, LanceError
from lance_core.table.branches import create_branch
from lance_core.table.refs import KEEPING_PREFIX

OLD = (dt.datetime.now(dt.UTC) - dt.timedelta(days=30)).timestamp()
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])


def rows(start, count=10):
    numbers = range(start, start + count)
    return pa.table({"id": numbers, "name": [f"n{number}" for number in numbers]}, schema=SCHEMA)


@pytest.fixture(params=[False, True], ids=["addresses", "stable ids"])
def table(tmp_path, request):
    """Three fragments of ten rows; versions 1 to 3 have deleted nothing, 4 and 5 one row of the second each."""
    uri = str(tmp_path / "t.lance")
    for start in (0, 10, 20):
        made = lance_core.write_dataset(rows(start), uri, mode="append", enable_stable_row_ids=request.param)
    made.delete("id = 11")
    made.delete("id = 12")
    return made


def ids(table):
    """Ids that pylance reads; lance_core must read the same."""
    found = sorted(lance.dataset(table.uri).to_table()["id"].to_pylist())
    assert sorted(lance_core.dataset(table.uri).to_table()["id"].to_pylist()) == found
    report = lance_core.verify(table.uri, level="full")
    assert not [problem for problem in report.problems if problem.version in {None, report.version}]
    return found


ALL = [number for number in range(30) if number not in {11, 12}]


def file(table, pattern):
    """The newest file of a pattern."""
    return max(Path(table.uri).glob(pattern), key=lambda path: path.stat().st_mtime_ns)


def manifest(table, version):
    return Path(table.uri, "_versions", f"{2**64 - 1 - version:020d}.manifest")


def data_file(table, fragment_id, number=0):
    return Path(table.uri, "data", table.get_fragment(fragment_id).metadata.files[number].path)


def empty(path):
    path.write_bytes(b"")


def tear(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def garble(path):
    path.write_bytes(os.urandom(path.stat().st_size))


def flip(path):
    data = bytearray(path.read_bytes())
    data[10] ^= 1
    path.write_bytes(data)


DAMAGES = [empty, tear, garble, Path.unlink]


@pytest.mark.parametrize("damage", DAMAGES[:3])
def test_a_damaged_newest_version_is_committed_again(table, damage):
    lance_core.write_dataset(rows(30), table.uri, mode="append")
    damage(manifest(table, 6))
    plan = lance_core.plan_repair(table.uri)
    assert plan.is_lossless
    assert "10 rows" in str(plan)
    assert list(lance_core.repair(table.uri).values()) == ["removed", "committed"]
    assert ids(table) == [*ALL, *range(30, 40)]
    assert Path(table.uri, "_damaged", "_versions", manifest(table, 6).name).exists()


def test_a_damaged_newest_version_without_its_transaction_is_lost(table):
    lance_core.write_dataset(rows(30), table.uri, mode="append")
    tear(manifest(table, 6))
    file(table, "_transactions/5-*").unlink()
    plan = lance_core.plan_repair(table.uri)
    assert plan.steps[0].loss == "what it changed is lost; version 5 becomes the newest"
    with pytest.raises(InvalidInputError, match=r"would lose something: .*allow_loss=True"):
        lance_core.repair(table.uri)
    assert lance_core.repair(table.uri, allow_loss=True) == {"version 6": "removed"}
    assert ids(table) == ALL


def test_two_damaged_versions_are_lost(table):
    empty(manifest(table, 4))
    tear(manifest(table, 5))
    assert lance_core.repair(table.uri, allow_loss=True) == {"version 4": "removed", "version 5": "removed"}
    assert ids(table) == list(range(30))


def test_a_damaged_older_version_no_longer_blocks_cleanup(table):
    garble(manifest(table, 2))
    with pytest.raises(LanceError):
        lance_core.dataset(table.uri).cleanup_old_versions(retain_versions=1)
    assert lance_core.repair(table.uri) == {"version 2": "removed"}
    assert ids(table) == ALL
    assert lance_core.dataset(table.uri).cleanup_old_versions(retain_versions=1).old_versions == 3
    assert ids(table) == ALL


def test_a_table_without_a_version_that_can_be_read_is_refused(tmp_path):
    made = lance_core.write_dataset(rows(0), tmp_path / "t")
    garble(manifest(made, 1))
    plan = lance_core.plan_repair(made.uri)
    assert (plan.version, plan.steps, len(plan.unrepaired)) == (None, (), 1)
    assert lance_core.repair(made.uri, allow_loss=True) == {}


@pytest.mark.parametrize("damage", [empty, tear, Path.unlink])
def test_a_fragment_whose_data_file_is_lost_is_removed(table, damage):
    damage(data_file(table, 1))
    plan = lance_core.plan_repair(table.uri)
    assert (plan.rows_lost, plan.steps[0].loss) == (8, "8 rows are lost: all of fragment 1")
    assert lance_core.repair(table.uri, allow_loss=True) == {"fragment 1": "removed"}
    assert ids(table) == [*range(10), *range(20, 30)]


def test_a_changed_byte_is_found_by_level_full(table):
    flip(data_file(table, 0))
    assert lance_core.plan_repair(table.uri).steps == ()
    assert lance_core.repair(table.uri, level="full", allow_loss=True) == {"fragment 0": "removed"}
    assert ids(table) == ALL[10:]


def test_values_of_a_lost_file_become_null_where_they_may(table):
    table.add_columns({"loud": "upper(name)"})
    data_file(table, 2, 1).unlink()
    plan = lance_core.plan_repair(table.uri)
    assert (plan.rows_lost, plan.steps[0].values_lost) == (0, 10)
    assert plan.steps[0].loss == "the values of loud in 10 rows are lost"
    assert lance_core.repair(table.uri, allow_loss=True) == {"fragment 2": "nulled"}
    assert ids(table) == ALL
    assert lance.dataset(table.uri).count_rows("loud is null") == 10


def test_a_lost_file_of_a_column_without_nulls_takes_the_fragment(table):
    table.add_columns({"twice": "id * 2"})
    data_file(table, 2, 0).unlink()
    assert lance_core.repair(table.uri, allow_loss=True) == {"fragment 2": "removed"}
    assert ids(table) == ALL[:-10]


def test_all_data_files_are_lost(table):
    for path in Path(table.uri, "data").iterdir():
        path.unlink()
    assert lance_core.plan_repair(table.uri).rows_lost == 28
    lance_core.repair(table.uri, allow_loss=True)
    assert ids(table) == []


@pytest.mark.parametrize("damage", DAMAGES)
def test_older_deletions_are_taken_for_those_that_are_lost(table, damage):
    damage(file(table, "_deletions/*"))
    plan = lance_core.plan_repair(table.uri)
    assert (plan.rows_returned, plan.steps[0].action) == (1, "deletions of version 4 are taken")
    assert lance_core.repair(table.uri, allow_loss=True) == {"fragment 1": "undeleted"}
    assert ids(table) == sorted([*ALL, 12])


def test_without_older_deletions_all_rows_come_back(table):
    for path in Path(table.uri, "_deletions").iterdir():
        path.unlink()
    assert lance_core.plan_repair(table.uri).rows_returned == 2
    lance_core.repair(table.uri, allow_loss=True)
    assert lance.dataset(table.uri).count_rows() == 30


def test_a_tag_of_a_version_that_is_gone_is_removed(table):
    table.tags.create("lost", 3)
    table.tags.create("kept", 5)
    manifest(table, 3).unlink()
    assert lance_core.repair(table.uri) == {"tag 'lost'": "removed"}
    assert list(lance.dataset(table.uri).tags.list()) == ["kept"]
    assert ids(table) == ALL


@pytest.mark.parametrize("damage", [empty, tear, garble])
def test_a_damaged_tag_is_removed(table, damage):
    table.tags.create("bad", 3)
    damage(file(table, "_refs/tags/*"))
    assert lance_core.repair(table.uri) == {"tag 'bad'": "removed"}
    assert ids(table) == ALL


def test_a_tag_of_a_restore_that_died_is_removed_after_a_day(table):
    name = f"{KEEPING_PREFIX}1234"
    table.tags.create(name, 2)
    assert lance_core.repair(table.uri) == {}
    path = file(table, "_refs/tags/*")
    path.write_text(json.dumps({**json.loads(path.read_text()), "createdAt": "2024-01-01T00:00:00Z"}))
    assert lance_core.repair(table.uri) == {f"tag {name!r}": "removed"}
    assert ids(table) == ALL


def test_a_branch_that_was_never_finished_is_removed_after_a_day(table):
    create_branch(table.snapshot, "try", uuid="1234")
    for path in Path(table.uri, "tree", "try", "_versions").iterdir():
        path.unlink()
    assert lance_core.repair(table.uri) == {}
    path = file(table, "_refs/branches/*")
    path.write_text(json.dumps({**json.loads(path.read_text()), "createAt": int(OLD)}))
    assert lance_core.repair(table.uri) == {"branch 'try'": "removed"}
    assert list(lance.dataset(table.uri).branches.list()) == []


def test_a_damaged_branch_with_versions_is_left_alone(table):
    create_branch(table.snapshot, "try", uuid="1234")
    garble(file(table, "_refs/branches/*"))
    plan = lance_core.plan_repair(table.uri)
    assert (plan.steps, [problem.kind for problem in plan.unrepaired]) == ((), ["ref"])


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_index_is_built_again(table, damage):
    table.create_scalar_index("id", "BTREE")
    damage(file(table, "_indices/*/page_data.lance"))
    assert lance_core.repair(table.uri) == {"id_idx": "rebuilt"}
    assert lance.dataset(table.uri).count_rows("id = 15") == 1
    assert ids(table) == ALL


def test_an_index_of_nulled_values_is_built_again(table):
    table.add_columns({"loud": "upper(name)"})
    table.create_scalar_index("loud", "BTREE")
    data_file(table, 2, 1).unlink()
    assert lance_core.repair(table.uri, allow_loss=True) == {"fragment 2": "nulled", "loud_idx": "rebuilt"}
    assert lance.dataset(table.uri).count_rows("loud = 'N20'") == 0
    assert lance.dataset(table.uri).count_rows("loud = 'N2'") == 1


def test_orphan_files_that_are_old_are_deleted(table):
    young, old = (Path(table.uri, "data", f"{name}.lance") for name in ("young", "old"))
    for path in (young, old):
        path.write_bytes(b"x")
    os.utime(old, (OLD, OLD))
    assert lance_core.repair(table.uri) == {"orphan files": "deleted"}
    assert (young.exists(), old.exists()) == (True, False)


def test_several_damages_are_repaired_at_once(table):
    table.create_scalar_index("id", "BTREE")
    table.tags.create("lost", 3)
    manifest(table, 3).unlink()
    garble(manifest(table, 2))
    data_file(table, 0).unlink()
    file(table, "_deletions/*").unlink()
    file(table, "_indices/*/page_data.lance").unlink()
    plan = lance_core.plan_repair(table.uri)
    assert (plan.rows_lost, plan.rows_returned) == (10, 1)
    outcome = lance_core.repair(table.uri, allow_loss=True)
    assert outcome == {
        "version 2": "removed",
        "fragment 0": "removed",
        "fragment 1": "undeleted",
        "tag 'lost'": "removed",
        "id_idx": "rebuilt",
    }
    assert ids(table) == sorted([*ALL[10:], 12])
    assert lance_core.repair(table.uri) == {}


def test_files_that_cannot_be_asked_for_are_not_lost(table, monkeypatch):
    """A store that does not answer is no reason to remove a fragment."""
    data_file(table, 0).unlink()

    def fails(*_):
        raise PermissionError("no")

    monkeypatch.setattr("lance_core.maintenance.diagnose.object_sizes", fails)
    plan = lance_core.plan_repair(table.uri)
    assert (plan.steps, [problem.kind for problem in plan.unrepaired]) == ((), ["data_file"])


def test_a_plan_is_json(table):
    data_file(table, 1).unlink()
    document = json.loads(json.dumps(lance_core.plan_repair(table.uri).asdict()))
    assert (document["rows_lost"], document["steps"][0]["target"]) == (8, "fragment 1")
