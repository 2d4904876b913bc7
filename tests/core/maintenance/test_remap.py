"""Indices whose row addresses are rewritten in the commit that replaces the fragments."""

import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import CommitConflictError, CorruptDataError, IndexCoverageWarning
from lance_core.format.table.operations import RewriteGroup
from lance_core.maintenance.remap import row_moves
from lance_core.scan.open_files import OpenFiles

ROWS = pa.table({"k": [i * 7919 % 1009 for i in range(1000)], "z": range(1000), "a": range(1000)})
DELETED = "k % 5 = 0 or (z >= 300 and z < 500)"


def answers(dataset):
    """Index answers of the keys, which must be those of a scan."""
    found = {}
    for condition in ("k = 77", "k in (3, 4, 5, 900)", "k < 20", "k is null"):
        by_index = dataset.scanner(filter=condition).to_table().to_pylist()
        by_scan = dataset.scanner(filter=condition, use_scalar_index=False).to_table().to_pylist()
        assert by_index == by_scan, condition
        found[condition] = sorted(row["z"] for row in by_index)
    return found


def uncovered(dataset, name="k_idx"):
    return dataset.index_statistics(name)["num_unindexed_rows"]


def index_folders(dataset):
    return {path.name for path in Path(dataset.uri, "_indices").iterdir() if any(path.iterdir())}


@pytest.fixture(params=[False, True], ids=["addresses", "stable row ids"])
def dataset(tmp_path, request):
    made = lance_core.write_dataset(ROWS, tmp_path / "t", max_rows_per_file=100, enable_stable_row_ids=request.param)
    made.create_scalar_index("k", "BTREE")
    return made


@pytest.mark.slow
@pytest.mark.parametrize("target", [150, 300, 10_000])
def test_compaction_keeps_coverage(dataset, target):
    dataset.delete(DELETED)
    before = answers(dataset)
    entry = dataset.list_indices()[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error", IndexCoverageWarning)
        metrics = dataset.optimize.compact_files(target_rows_per_fragment=target)
    assert metrics.fragments_removed
    assert not metrics.unindexed_rows
    assert uncovered(dataset) == 0
    assert answers(dataset) == before
    assert lance_core.verify(dataset.uri).is_ok
    after = dataset.list_indices()[0]
    assert after["uuid"] != entry["uuid"]
    assert after["fragment_ids"] >= {one.fragment_id for one in dataset.get_fragments()}
    (rewritten,) = dataset.read_transaction(dataset.version).operation.rewritten_indices
    assert (rewritten.old_id, rewritten.new_id) == (entry["uuid"], after["uuid"])


def test_materialization_keeps_coverage(dataset):
    dataset.delete(DELETED)
    before = answers(dataset)
    dataset.optimize.materialize_deletions(threshold=0.3)
    assert uncovered(dataset) == 0
    assert answers(dataset) == before


def test_a_part_of_the_fragments_is_rewritten(dataset):
    before = answers(dataset)
    dataset.optimize.compact_files(max_source_fragments=4, target_rows_per_fragment=200)
    assert len(dataset.get_fragments()) == 8
    assert uncovered(dataset) == 0
    assert answers(dataset) == before


def test_fragments_that_were_not_covered_stay_uncovered(dataset):
    dataset = lance_core.write_dataset(ROWS, dataset, mode="append", max_rows_per_file=100)
    before = answers(dataset)
    dataset.optimize.compact_files()
    assert len(dataset.get_fragments()) == 2
    assert uncovered(dataset) == 1000
    assert answers(dataset) == before


def test_entries_of_columns_that_changed_in_place_are_dropped(dataset):
    reader = pa.table({"z": range(100), "k": [5000 + i for i in range(100)]})
    dataset.merge_insert("z").when_matched_update_all().write_mode("rewrite_columns").execute(reader)
    dataset = lance_core.dataset(dataset.uri)
    before = answers(dataset)
    uncovered_rows = uncovered(dataset)
    assert uncovered_rows
    dataset.optimize.compact_files()
    assert uncovered(dataset) == uncovered_rows
    assert answers(dataset) == before


def test_without_indices_no_ids_are_reserved(tmp_path):
    dataset = lance_core.write_dataset(ROWS, tmp_path / "t", max_rows_per_file=100)
    dataset.optimize.compact_files()
    assert dataset.version == 2


def test_a_damaged_index_does_not_stop_compaction(dataset):
    (folder,) = index_folders(dataset)
    Path(dataset.uri, "_indices", folder, "page_lookup.lance").write_bytes(b"damaged" * 20)
    with pytest.warns(IndexCoverageWarning, match="1,000 of 'k_idx'"):
        lance_core.dataset(dataset.uri).optimize.compact_files()
    with pytest.raises(CorruptDataError):
        lance_core.dataset(dataset.uri).checkout_version(2).count_rows("k = 5")
    assert lance_core.dataset(dataset.uri).count_rows("k = 5") == 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_zone_maps_follow_their_rows(tmp_path, seed):
    """Nulls and NaN that are left, zones cut by new fragments, small zones as one."""
    rng = np.random.default_rng(seed)
    numbers = np.sort(rng.integers(0, 300, 600)).astype(float)
    numbers[rng.random(600) < 0.2] = np.nan
    values = pa.array(numbers, mask=rng.random(600) < 0.2)
    rows = pa.table({"x": values, "row": range(600)})
    dataset = lance_core.write_dataset(rows, tmp_path / "t", max_rows_per_file=int(rng.integers(40, 200)))
    dataset.create_scalar_index("x", "ZONEMAP", rows_per_zone=int(rng.integers(1, 60)))
    first, size = rng.integers(0, 400), rng.integers(1, 200)
    dataset.delete(f"row % {rng.integers(2, 9)} = 1 or (row >= {first} and row < {first + size})")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        dataset.optimize.compact_files(target_rows_per_fragment=int(rng.integers(50, 700)))
    assert (uncovered(dataset, "x_idx") == 0) == (not warned)
    low = rng.integers(0, 250)
    for condition in (f"x = {low}", f"x >= {low} and x < {low + 20}", "x is null", "x is not null", f"not (x > {low})"):
        by_index, by_scan = (
            dataset.scanner(filter=condition, columns=["row"], use_scalar_index=use).to_table()["row"].to_pylist()
            for use in (True, False)
        )
        assert by_index == by_scan, condition


# ------------------------------------------------------------------------------------------------------------ conflicts


def planned(dataset, **options):
    plan = lance_core.Compaction.plan(dataset, options)
    return lance_core.Compaction.run(dataset, plan)


def test_rows_are_appended_meanwhile(dataset):
    results = planned(dataset)
    lance_core.write_dataset(ROWS, dataset.uri, mode="append")
    lance_core.Compaction.commit(dataset, results)
    assert uncovered(dataset) == 1000
    answers(dataset)


def test_the_index_is_dropped_meanwhile(dataset):
    results = planned(dataset)
    lance_core.dataset(dataset.uri).drop_index("k_idx")
    folders = index_folders(dataset)
    lance_core.Compaction.commit(dataset, results)
    assert dataset.list_indices() == []
    assert len(dataset.get_fragments()) == 1
    assert index_folders(dataset) == folders


def test_a_conflict_removes_the_new_files(dataset):
    results = planned(dataset)
    lance_core.dataset(dataset.uri).delete("z = 5")
    folders = index_folders(dataset)
    with pytest.raises(CommitConflictError):
        lance_core.Compaction.commit(dataset, results)
    assert index_folders(dataset) == folders


def test_a_drop_follows_the_index_that_a_compaction_rewrote(dataset):
    stale = lance_core.dataset(dataset.uri)
    dataset.optimize.compact_files()
    stale.drop_index("k_idx")
    assert lance_core.dataset(dataset.uri).list_indices() == []


def test_an_index_is_built_meanwhile(dataset):
    """The compaction remaps that one as well, without writing the rows again."""
    stale = lance_core.dataset(dataset.uri)
    lance_core.dataset(dataset.uri).create_scalar_index("z", "BTREE")
    stale.optimize.compact_files()
    assert [uncovered(stale, name) for name in ("k_idx", "z_idx")] == [0, 0]
    assert stale.count_rows("z = 500") == 1


def test_two_compactions_of_different_fragments(dataset):
    first, second = (lance_core.dataset(dataset.uri) for _ in range(2))
    before = answers(dataset)
    first_results = planned(first, excluded_fragment_ids=range(5, 10))
    second_results = planned(second, excluded_fragment_ids=range(5))
    lance_core.Compaction.commit(first, first_results)
    lance_core.Compaction.commit(second, second_results)
    assert len(second.get_fragments()) == 2
    assert uncovered(second) == 0
    assert answers(second) == before


# ---------------------------------------------------------------------------------------------------------- the mapping


@pytest.mark.parametrize("sizes", [[800], [300, 500], [1, 798, 1], [400, 200, 200]])
def test_row_addresses_follow_their_rows(tmp_path, sizes):
    dataset = lance_core.write_dataset(ROWS, tmp_path / "t", max_rows_per_file=100)
    dataset.delete("z % 5 = 0 and z < 1000")
    fragments = tuple(dataset.snapshot.manifest.fragments)
    groups, number = [], 50
    new = []
    for size in sizes:
        template = fragments[0]
        new.append(type(template)(id=number, files=template.files, physical_rows=size))
        number += 3
    groups.append(RewriteGroup(old_fragments=fragments[::-1], new_fragments=tuple(new)))
    moves = row_moves(OpenFiles(dataset.snapshot.store), groups)
    live = [
        (fragment.id << 32) + offset
        for fragment in fragments[::-1]
        for offset in range(100)
        if (fragment.id * 100 + offset) % 5
    ]
    expected = [(fragment.id << 32) + offset for fragment in new for offset in range(fragment.physical_rows)]
    mapping = dict(zip(live, expected, strict=True))
    asked = np.random.default_rng(2).permutation([(owner << 32) + row for owner in range(10) for row in range(100)])
    assert moves(asked).tolist() == [mapping.get(address, -1) for address in asked.tolist()]
    elsewhere = np.array([(40 << 32) + 5, (60 << 32) + 7])
    assert moves(elsewhere).tolist() == elsewhere.tolist()
    with pytest.raises(CorruptDataError, match="behind the last one"):
        moves(np.array([100]))
