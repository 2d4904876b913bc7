"""Overwrites through a dataset that was opened before others committed: pylance tells when that is a conflict."""

import lance
import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import CommitConflictError

CONFLICT = {lance: OSError, lance_core: CommitConflictError}


def rows(*values):
    return pa.table({"x": pa.array(values, pa.int64())})


OTHERS = {
    "append": lambda library, path: library.write_dataset(rows(3), path, mode="append"),
    "delete": lambda library, path: library.dataset(path).delete("x = 1"),
    "config": lambda library, path: library.dataset(path).update_config({"a": "b"}),
    "restore": lambda library, path: library.dataset(path, version=1).restore(),
    "overwrite": lambda library, path: library.write_dataset(rows(4), path, mode="overwrite"),
}


@pytest.mark.parametrize("ours", [lance_core, lance])
@pytest.mark.parametrize("theirs", [lance_core, lance])
@pytest.mark.parametrize("other", OTHERS)
def test_an_overwrite_through_a_stale_dataset_conflicts_with_overwrites_only(tmp_path, ours, theirs, other):
    lance.write_dataset(rows(1, 2), tmp_path)
    stale = ours.dataset(tmp_path)
    OTHERS[other](theirs, tmp_path)
    before = lance.dataset(tmp_path).to_table()
    if other != "overwrite":
        assert ours.write_dataset(rows(9), stale, mode="overwrite").to_table() == rows(9)
        return
    with pytest.raises(CONFLICT[ours], match="conflict"):
        ours.write_dataset(rows(9), stale, mode="overwrite")
    assert lance.dataset(tmp_path).to_table() == before
    if ours is lance_core:
        assert lance_core.verify(tmp_path).num_orphans == 0, "what it staged is removed"


@pytest.mark.parametrize("library", [lance_core, lance])
def test_an_overwrite_by_address_is_made_from_the_newest_version(tmp_path, library):
    library.write_dataset(rows(1, 2), tmp_path)
    for value in (4, 5):
        assert library.write_dataset(rows(value), tmp_path, mode="overwrite").to_table() == rows(value)


@pytest.mark.parametrize("library", [lance_core, lance])
def test_an_overwrite_through_an_old_version_conflicts_with_later_overwrites(tmp_path, library):
    library.write_dataset(rows(1, 2), tmp_path)
    library.write_dataset(rows(4), tmp_path, mode="overwrite")
    with pytest.raises(CONFLICT[library]):
        library.write_dataset(rows(9), library.dataset(tmp_path, version=1), mode="overwrite")


def test_a_repeated_overwrite_through_a_stale_dataset_is_found_by_its_key(tmp_path):
    stale = lance_core.write_dataset(rows(1, 2), tmp_path)
    options = {"mode": "overwrite", "idempotency_key": "run-1"}
    done = lance_core.write_dataset(rows(4), stale, **options)
    assert lance_core.write_dataset(rows(4), stale, **options).version == done.version == 2


def test_a_dataset_that_overwrites_again_and_again(tmp_path):
    dataset = lance_core.write_dataset(rows(1), tmp_path)
    for value in range(3):
        dataset = lance_core.write_dataset(rows(value), dataset, mode="overwrite")
        dataset.insert(rows(value, value), mode="overwrite")
    assert (dataset.version, dataset.count_rows()) == (7, 2)


def test_a_dataset_of_another_branch_has_seen_nothing_of_the_branch(tmp_path):
    dataset = lance_core.write_dataset(rows(1), tmp_path)
    dataset.create_branch("b")
    branch = lance_core.write_dataset(rows(4), dataset, mode="overwrite", branch="b")
    branch = lance_core.write_dataset(rows(5), dataset, mode="overwrite", branch="b")
    assert branch.to_table() == rows(5)
