"""The audit finds states in which pylance answers wrongly: those it makes itself, and those of defects it had."""

import math
import shutil
from dataclasses import replace
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import lance_core
from lance_core.change.retries import commit_options, commit_work
from lance_core.format.table.index_metadata import index_fields, make_index
from lance_core.format.table.operations import CreateIndex

CONDITIONS = {
    "BTREE": ("k", "k = 1"),
    "BITMAP": ("k", "k = 1"),
    "LABEL_LIST": ("l", "array_has(l, 'x1')"),
    "NGRAM": ("s", "contains(s, 'text1')"),
    "ZONEMAP": ("k", "k = 1"),
    "BLOOMFILTER": ("k", "k = 1"),
}


def make(path, *, stable=False, kind=None, count=60):
    numbers = range(count)
    columns = {
        "id": pa.array(numbers, pa.int64()),
        "k": pa.array([number % 5 for number in numbers], pa.int64()),
        "l": pa.array([[f"x{number % 5}"] for number in numbers], pa.list_(pa.string())),
        "s": pa.array([f"text{number % 5}" for number in numbers], pa.string()),
    }
    lance.write_dataset(pa.table(columns), path, max_rows_per_file=20, enable_stable_row_ids=stable)
    if kind is not None:
        lance.dataset(path).create_scalar_index(CONDITIONS[kind][0], kind, name="i")
    return str(path)


def is_right_in_pylance(uri, condition):
    found = lance.dataset(uri).to_table(filter=condition)["id"].to_pylist()
    scanned = lance.dataset(uri).to_table(filter=condition, use_scalar_index=False)["id"].to_pylist()
    return sorted(found) == sorted(scanned)


def problems(uri):
    report = lance_core.verify(uri, level="indices")
    return {problem.fragment_id for problem in report.problems if problem.index_name}


@pytest.mark.parametrize("kind", CONDITIONS)
def test_stale_entries_of_older_segments_are_found(tmp_path, kind):
    """With stable row ids, pylance answers from bitmaps of rows that another segment covers since they changed."""
    uri, (column, condition) = make(tmp_path / "t", stable=True, kind=kind), CONDITIONS[kind]
    values = {"k": "9", "l": "['y']", "s": "'other'"}
    if column == "l":
        row = lance.dataset(uri).to_table(filter="id = 31").set_column(2, "l", pa.array([["y"]]))
        lance.dataset(uri).merge_insert("id").when_matched_update_all().execute(row)
    else:
        lance.dataset(uri).update({column: values[column]}, where="id = 31")
    lance.dataset(uri).optimize.optimize_indices(num_indices_to_merge=0)
    is_right = is_right_in_pylance(uri, condition)
    assert is_right == (kind not in {"BITMAP", "LABEL_LIST"})
    assert (problems(uri) == set()) == is_right
    lance_core.repair(uri)
    assert problems(uri) == set()
    assert is_right_in_pylance(uri, condition)


@pytest.mark.parametrize("kind", ["BITMAP", "LABEL_LIST"])
def test_lance_core_leaves_no_stale_entries_for_pylance(tmp_path, kind):
    uri, (_, condition) = make(tmp_path / "t", stable=True, kind=kind), CONDITIONS[kind]
    row = lance.dataset(uri).to_table(filter="id = 31")
    row = row.set_column(1, "k", pa.array([9])).set_column(2, "l", pa.array([["y"]]))
    lance.dataset(uri).merge_insert("id").when_matched_update_all().execute(row)
    lance_core.dataset(uri).optimize.optimize_indices(num_indices_to_merge=0)
    assert lance_core.dataset(uri).index_statistics("i")["num_unindexed_rows"] == 0
    assert is_right_in_pylance(uri, condition)
    assert problems(uri) == set()


def cover(uri, fragment_ids, files=None):
    """Let the entry of the index name some fragments, whatever its files say, and give it other files."""
    dataset = lance_core.dataset(uri)
    (old,) = (index for index in dataset.snapshot.manifest.indices if index.name == "i")
    if files is not None:
        folder = Path(uri, "_indices", old.uuid_text)
        shutil.rmtree(folder)
        shutil.copytree(files, folder)
    new = make_index(replace(index_fields(old), fragment_ids=frozenset(fragment_ids), files=()))

    class Work:
        sees_new_rows = False

        def prepare(self, _):
            return CreateIndex(new_indices=(new,), removed_indices=(old,))

        def forget(self):
            pass

    commit_work(dataset.snapshot, Work(), commit_options())


@pytest.mark.parametrize("kind", ["ZONEMAP", "BLOOMFILTER"])
def test_zones_of_fragments_before_a_compaction_are_found(tmp_path, kind):
    """The state of lance#8221 and lance#8504: zones name old fragments, and the entry the new one."""
    uri, (_, condition) = make(tmp_path / "t", kind=kind), CONDITIONS[kind]
    files = shutil.copytree(next(Path(uri, "_indices").iterdir()), tmp_path / "files")
    lance_core.dataset(uri).drop_index("i")
    lance.dataset(uri).optimize.compact_files()
    lance.dataset(uri).create_scalar_index("k", kind, name="i")
    (fragment,) = lance.dataset(uri).get_fragments()
    cover(uri, [fragment.fragment_id], files)
    assert not is_right_in_pylance(uri, condition)
    assert problems(uri) == {fragment.fragment_id}
    assert {problem.fragment_id for problem in lance_core.verify(uri, level="indices", sample_rows=10).problems}
    assert lance_core.repair(uri) == {"i": "rebuilt"}
    assert is_right_in_pylance(uri, condition)


@pytest.mark.parametrize("kind", CONDITIONS)
def test_indices_that_lost_their_entries_are_found(tmp_path, kind):
    """The state of lance#9270: merged segments that cover the table and hold nothing of it."""
    uri = make(tmp_path / "t", kind=kind)
    empty = make(tmp_path / "empty", kind=kind, count=0)
    cover(uri, [0, 1, 2], next(Path(empty, "_indices").iterdir(), None))
    assert problems(uri) == {0, 1, 2}
    assert lance_core.repair(uri) == {"i": "rebuilt"}
    assert is_right_in_pylance(uri, CONDITIONS[kind][1])


@pytest.mark.parametrize("kind", CONDITIONS)
def test_indices_that_lost_some_entries_are_found(tmp_path, kind):
    """The state of lance#6116: with stable row ids, a merge of segments left out the rows of a fragment."""
    uri, (column, condition) = make(tmp_path / "t", stable=True), CONDITIONS[kind]
    lance_core.dataset(uri).create_scalar_index(column, kind, name="i", fragment_ids=[0, 1])
    assert problems(uri) == set()
    cover(uri, [0, 1, 2])
    assert not is_right_in_pylance(uri, condition)
    assert problems(uri) == {2}
    assert lance_core.repair(uri) == {"i": "rebuilt"}
    assert is_right_in_pylance(uri, condition)


@pytest.mark.parametrize("kind", CONDITIONS)
def test_the_audit_agrees_with_pylance_after_a_compaction_and_a_merge_of_segments(tmp_path, kind):
    """The steps of lance#6116, after which pylance 14.0.2 answers right."""
    uri, (_, condition) = make(tmp_path / "t", stable=True, kind=kind), CONDITIONS[kind]
    lance.write_dataset(lance.dataset(uri).to_table(), uri, mode="append", max_rows_per_file=20)
    lance.dataset(uri).delete("id = 11")
    lance.dataset(uri).optimize.compact_files()
    lance.dataset(uri).optimize.optimize_indices()
    assert is_right_in_pylance(uri, condition)
    assert problems(uri) == set()


@pytest.mark.parametrize("package", [lance_core, lance])
def test_merges_by_an_indexed_key_update_all_rows(tmp_path, package):
    """The state of lance#7251 and lance#7596: the key is not the first column, and the first is null everywhere."""
    uri = str(tmp_path / "t")
    columns = {"vector": pa.nulls(64, pa.list_(pa.float32(), 4)), "path": [f"{row}.jpg" for row in range(64)]}
    lance.write_dataset(pa.table({**columns, "size": pa.array(range(64))}), uri)
    lance.dataset(uri).create_scalar_index("path", "BTREE")
    source = pa.table({"vector": columns["vector"].slice(0, 8), "path": columns["path"][:8], "size": [-1] * 8})
    for rows in (source, source.select(["path", "size"])):
        result = package.dataset(uri).merge_insert("path").when_matched_update_all().execute(rows)
        assert result["num_updated_rows"] == 8
        assert problems(uri) == set()
    assert lance.dataset(uri).count_rows("size = -1") == 8


def with_changed_nulls(path, kind, *, stable):
    """A table in which pylance changed values in place, so that its fragment left the index."""
    columns = {"id": range(6), "k": pa.array([None, 1, None, 3, 4, 5]), "other": range(6)}
    lance.write_dataset(pa.table(columns), path, max_rows_per_file=3, enable_stable_row_ids=stable)
    lance.dataset(path).create_scalar_index("id", "BTREE")
    lance.dataset(path).create_scalar_index("k", kind, name="i")
    source = pa.table({"id": [0, 1], "k": pa.array([10, None], pa.int64())})
    lance.dataset(path).merge_insert("id").when_matched_update_all().execute(source)
    return str(path)


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("kind", ["ZONEMAP", "BLOOMFILTER"])
@pytest.mark.parametrize("num_to_merge", [0, 1])
def test_stale_nulls_of_rows_changed_in_place_are_found(tmp_path, kind, stable, num_to_merge):
    """pylance 14.0.2 answers IS NULL from nulls that a segment tells of rows that it covers no more."""
    uri = with_changed_nulls(tmp_path / "t", kind, stable=stable)
    lance.dataset(uri).optimize.optimize_indices(num_indices_to_merge=num_to_merge)
    assert not is_right_in_pylance(uri, "k IS NULL")
    for condition, ids in (("k IS NULL", [1, 2]), ("k = 10", [0]), ("k IS NOT NULL", [0, 3, 4, 5])):
        assert lance_core.dataset(uri).to_table(filter=condition)["id"].to_pylist() == ids
    assert problems(uri) == {0}
    assert lance_core.repair(uri) == {"i": "rebuilt"}
    assert is_right_in_pylance(uri, "k IS NULL")
    assert problems(uri) == set()


@pytest.mark.parametrize("values", [[math.nan], [None, math.nan, math.nan]])
@pytest.mark.parametrize("heal", ["repair", "merge"])
def test_zones_of_nan_only_are_found(tmp_path, values, heal):
    """pylance 14.0.2 gives them no smallest value, and leaves them out of answers to what is greater."""
    uri = str(tmp_path / "t")
    ids = range(3 * len(values))
    rows = pa.table({"id": ids, "k": pa.array([*values, *values, *([2.5] * len(values))], pa.float64())})
    lance.write_dataset(rows, uri, max_rows_per_file=len(values))
    lance.dataset(uri).create_scalar_index("k", "ZONEMAP", name="i")
    assert not is_right_in_pylance(uri, "k > 1.0")
    assert lance_core.dataset(uri).count_rows("k > 1.0") == sum(value is not None for value in values) * 2 + len(values)
    assert problems(uri) == {0, 1}
    if heal == "repair":
        assert lance_core.repair(uri) == {"i": "rebuilt"}
    else:  # any file that lance_core writes has a smallest value
        lance_core.dataset(uri).optimize.compact_files()
    assert problems(uri) == set()
    for condition in ("k > 1.0", "NOT (k < 1.0)", "k >= 2.5", "k IS NULL"):
        assert is_right_in_pylance(uri, condition)


@pytest.mark.parametrize("kind", ["ZONEMAP", "BLOOMFILTER"])
def test_upkeep_leaves_no_stale_nulls(tmp_path, kind):
    uri = with_changed_nulls(tmp_path / "t", kind, stable=False)
    lance_core.dataset(uri).optimize.optimize_indices(num_indices_to_merge=0)
    assert is_right_in_pylance(uri, "k IS NULL")
    assert problems(uri) == set()
