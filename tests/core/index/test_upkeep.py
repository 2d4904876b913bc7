"""Indices brought up to date: new segments, merges that pay, damaged indices."""

from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

import lance_core
from lance_core.change.index_upkeep import plan_extension
from lance_core.errors import CorruptDataError, InvalidInputError
from lance_core.format.table.fragment import Fragment
from lance_core.format.table.fragment_list import FragmentList
from lance_core.format.table.index_metadata import IndexFields, make_index


def rows(start, count=100):
    return pa.table({"k": range(start, start + count), "z": range(start, start + count)})


@pytest.fixture
def dataset(tmp_path):
    made = lance_core.write_dataset(rows(0), tmp_path / "t")
    made.create_scalar_index("k", "BTREE")
    made.create_scalar_index("z", "ZONEMAP")
    return made


def append(dataset, start):
    lance_core.write_dataset(rows(start), dataset.uri, mode="append")
    dataset.checkout_latest()


def segments(dataset, name="k_idx"):
    return [sorted(one["fragment_ids"]) for one in dataset.list_indices() if one["name"] == name]


def check(dataset):
    for number in range(0, dataset.count_rows(), 37):
        for column in ("k", "z"):
            assert dataset.count_rows(f"{column} = {number}") == 1
    assert lance_core.verify(dataset.uri).is_ok


def test_new_fragments_become_a_segment_of_their_own(dataset):
    append(dataset, 100)
    assert sorted(dataset.optimize.optimize_indices(num_indices_to_merge=0)) == ["k_idx", "z_idx"]
    assert segments(dataset) == [[0], [1]]
    assert segments(dataset, "z_idx") == [[0], [1]]
    check(dataset)


def test_the_newest_segments_are_merged(dataset):
    for start in (100, 200):
        append(dataset, start)
        dataset.optimize.optimize_indices(num_indices_to_merge=0)
    append(dataset, 300)
    dataset.optimize.optimize_indices(num_indices_to_merge=2)
    assert segments(dataset) == [[0], [1, 2, 3]]
    check(dataset)
    dataset.optimize.optimize_indices()
    assert segments(dataset) == [[0, 1, 2, 3]]
    check(dataset)


@pytest.mark.parametrize("options", [{}, {"num_indices_to_merge": 0}, {"num_indices_to_merge": 1}])
def test_with_nothing_to_do_no_version_is_made(dataset, options):
    assert dataset.optimize.optimize_indices(**options) == []
    assert dataset.version == dataset.latest_version == 3


def test_retraining_reads_all_rows(dataset):
    append(dataset, 100)
    dataset.optimize.optimize_indices(num_indices_to_merge=0)
    before = {one["uuid"] for one in dataset.list_indices()}
    assert sorted(dataset.optimize.optimize_indices(retrain=True)) == ["k_idx", "z_idx"]
    assert segments(dataset) == [[0, 1]]
    assert before.isdisjoint(one["uuid"] for one in dataset.list_indices())
    check(dataset)


def test_a_damaged_index_does_not_stop_the_others(dataset):
    (broken,) = (one["uuid"] for one in dataset.list_indices() if one["name"] == "k_idx")
    Path(dataset.uri, "_indices", broken, "page_lookup.lance").write_bytes(b"damaged" * 20)
    append(dataset, 100)
    dataset = lance_core.dataset(dataset.uri)
    with pytest.raises(CorruptDataError, match=r"index 'k_idx' is damaged.*drop_index\('k_idx'\)"):
        dataset.optimize.optimize_indices()
    assert segments(dataset, "z_idx") == [[0, 1]]
    assert segments(dataset) == [[0]]
    assert dataset.optimize.optimize_indices(index_names=["k_idx"], retrain=True) == ["k_idx"]
    assert segments(dataset) == [[0, 1]]
    assert dataset.count_rows("k = 150") == 1


def test_all_indices_are_damaged(dataset):
    for one in dataset.list_indices():
        for path in Path(dataset.uri, "_indices", one["uuid"]).iterdir():
            path.write_bytes(b"damaged" * 20)
    append(dataset, 100)
    dataset, folders = lance_core.dataset(dataset.uri), set(Path(dataset.uri, "_indices").iterdir())
    with pytest.raises(CorruptDataError, match="2 indices could not be optimized"):
        dataset.optimize.optimize_indices()
    assert dataset.latest_version == dataset.version
    assert {path for path in Path(dataset.uri, "_indices").iterdir() if any(path.iterdir())} == folders


def test_an_index_of_an_empty_table_stays(dataset):
    dataset.delete("true")
    dataset.optimize.optimize_indices()
    assert {one["name"] for one in dataset.list_indices()} == {"k_idx", "z_idx"}
    append(dataset, 0)
    dataset.optimize.optimize_indices()
    check(dataset)


def test_negative_numbers_are_refused(dataset):
    with pytest.raises(InvalidInputError, match="num_indices_to_merge"):
        dataset.optimize.optimize_indices(num_indices_to_merge=-1)


# ---------------------------------------------------------------------------------------------------- when merging pays

MILLION = 1_000_000


def merged(*sizes, uncovered=0):
    """Rows of the segments that are replaced; sizes are those of all segments, the oldest first."""
    counts = [*sizes, *([uncovered] if uncovered else [])]
    fragments = [Fragment(id=number, files=(), physical_rows=count) for number, count in enumerate(counts)]
    entries = [
        make_index(
            IndexFields(
                uuid=bytes([number] * 16), name="i", fields=(0,), dataset_version=1, fragment_ids=frozenset({number})
            )
        )
        for number in range(len(sizes))
    ]
    manifest = SimpleNamespace(fragments=FragmentList.of(fragments))
    extension = plan_extension(manifest, entries)
    return None if extension is None else [sizes[entries.index(entry)] for entry in extension.replaced]


def test_merging_pays_for_segments_that_are_not_much_larger():
    assert merged(100 * MILLION, uncovered=MILLION) == []
    assert merged(4 * MILLION, uncovered=MILLION) == [4 * MILLION]
    assert merged(100 * MILLION, 3 * MILLION, MILLION, uncovered=MILLION) == [3 * MILLION, MILLION]
    assert merged(100 * MILLION, 30 * MILLION) is None
    assert merged(100 * MILLION, 1000, 1000) == [1000, 1000]


def test_a_nightly_append_writes_each_row_a_few_times():
    """A year of appends of a million rows."""
    segments, written = [], 0
    for _ in range(365):
        replaced = merged(*segments, uncovered=MILLION)
        segments = [*segments[: len(segments) - len(replaced)], MILLION + sum(replaced)]
        written += segments[-1]
    assert len(segments) <= 8
    assert written / (365 * MILLION) < 12
