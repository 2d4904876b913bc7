import numpy as np
import pytest

from lance_core.errors import InvalidInputError
from lance_core.format.schema import Schema
from lance_core.format.table.fragment import DataFile, DeletionFile, DeletionFileType, Fragment
from lance_core.format.table.fragment_list import FragmentList
from lance_core.format.table.manifest import Manifest
from lance_core.maintenance.plan import CompactionOptions, make_options, plan_compaction, plan_materialization


def manifest(*sizes):
    """A table whose fragments have so many (rows, deleted rows)."""
    fragments = []
    for number, (rows, deleted) in enumerate(sizes):
        mark = DeletionFile(file_type=DeletionFileType.BITMAP, read_version=1, id=number, num_deleted_rows=deleted)
        data = DataFile(
            path=f"{number}.lance",
            fields=(0,),
            column_indices=(0,),
            file_major_version=2,
            file_minor_version=2,
            file_size_bytes=rows * 10,
        )
        fragments.append(
            Fragment(id=number, files=(data,), physical_rows=rows, deletion_file=mark if deleted else None)
        )
    schema = Schema(())
    return Manifest(version=7, schema=schema, fragments=FragmentList.of(fragments), data_storage_version="2.2")


def small(*rows):
    return manifest(*((n, 0) for n in rows))


def planned(table, **options):
    tasks = plan_compaction(table, CompactionOptions(**{"target_rows_per_fragment": 250, **options}))
    assert all(task.read_version == 7 for task in tasks)
    return [[fragment.id for fragment in task.fragments] for task in tasks]


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (small(), []),
        (small(100), []),
        (small(100, 100), [[0, 1]]),
        (small(*[100] * 7), [[0, 1, 2], [3, 4, 5, 6]]),
        (small(*[100] * 6), [[0, 1, 2], [3, 4, 5]]),
        (small(*[100] * 5), [[0, 1, 2, 3, 4]]),
        (small(300, 100, 300, 100, 100), [[3, 4]]),
        (small(249, 250, 249), []),
        (small(249, 249), [[0, 1]]),
        (manifest((300, 31)), [[0]]),
        (manifest((300, 30)), []),
        (manifest((300, 31), (300, 0), (300, 100)), [[0], [2]]),
        (manifest((300, 31), (100, 0)), [[0, 1]]),
        (manifest((1000, 200), (1000, 200)), [[0], [1]]),
        (manifest((100, 100), (100, 0)), [[0, 1]]),
    ],
)
def test_bins_and_tasks(table, expected):
    assert planned(table) == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"materialize_deletions": False}, [[2, 3]]),
        ({"materialize_deletions_threshold": 1.0}, [[2, 3]]),
        ({"materialize_deletions_threshold": 0.0}, [[0], [1, 2, 3]]),
        ({"excluded_fragment_ids": frozenset({0, 99})}, [[2, 3]]),
        ({"excluded_fragment_ids": frozenset({2})}, [[0]]),
        ({"max_source_fragments": 1}, [[0]]),
        ({"max_source_fragments": 2}, [[0]]),
        ({"max_source_fragments": 3}, [[0], [2, 3]]),
        ({"max_source_fragments": 0}, []),
        ({"max_source_rows": 250}, [[0]]),
        ({"max_source_rows": 249}, []),
        ({"max_source_bytes": 5000}, [[0], [2, 3]]),
        ({"max_source_bytes": 4999}, [[0]]),
        ({"target_rows_per_fragment": 10_000}, [[0, 1, 2, 3]]),
    ],
)
def test_options(options, expected):
    assert planned(manifest((300, 50), (300, 1), (100, 0), (100, 0)), **options) == expected


def test_every_fragment_is_planned_at_most_once_and_in_order():
    random = np.random.default_rng(1)
    for _ in range(200):
        sizes = [
            (int(n), int(n * share)) for n, share in zip(random.integers(1, 400, 12), random.random(12), strict=True)
        ]
        tasks = planned(manifest(*sizes))
        flat = [one for task in tasks for one in task]
        assert flat == sorted(set(flat))
        assert all(task == list(range(task[0], task[0] + len(task))) for task in tasks)


def test_materialization_takes_single_fragments():
    table = manifest((100, 0), (100, 1), (100, 50), (100, 100))

    def ids(**options):
        return [[fragment.id for fragment in task.fragments] for task in plan_materialization(table, **options)]

    assert ids() == [[1], [2], [3]]
    assert ids(threshold=0.5) == [[3]]
    assert ids(threshold=0.01) == [[2], [3]]
    assert plan_materialization(small(100, 100)) == ()


def test_options_come_from_arguments_then_config_then_defaults():
    config = {
        "lance.compaction.target_rows_per_fragment": "500",
        "lance.compaction.materialize_deletions": "false",
        "lance.compaction.materialize_deletions_threshold": "0.3",
        "unrelated": "x",
    }
    options = make_options({"target_rows_per_fragment": 9, "batch_size": None}, config)
    assert options == CompactionOptions(
        target_rows_per_fragment=9, materialize_deletions=False, materialize_deletions_threshold=0.3
    )
    with pytest.raises(InvalidInputError, match=r"materialize_deletions' must be of type bool, but is 'maybe'"):
        make_options({}, {"lance.compaction.materialize_deletions": "maybe"})
    with pytest.raises(InvalidInputError, match="at least 1"):
        make_options({"target_rows_per_fragment": 0}, {})
