"""Versions that are kept from clean-up while somebody reads them."""

import pickle
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import NotFoundError, VersionNotFoundError
from lance_core.format.table.paths import TAGS_FOLDER
from lance_core.maintenance.cleanup import cleanup_old_versions
from lance_core.store.memory import MemoryStore
from lance_core.table.commit import commit
from lance_core.table.refs import keeping, ref_names
from lance_core.table.runtime import SYSTEM_RUNTIME, Runtime
from lance_core.table.snapshot import list_versions, open_snapshot
from lance_core.testing.faulty_store import FaultyStore
from lance_core.testing.tables import create, overwrite, read_rows

OLD, NEW = pa.table({"a": range(100)}), pa.table({"a": range(5)})


@pytest.fixture
def reader(tmp_path):
    """A dataset at a version that is not the newest, and whose file no other version needs."""
    dataset = lance_core.write_dataset(OLD, tmp_path / "t")
    lance_core.write_dataset(NEW, tmp_path / "t", mode="overwrite")
    return dataset


def clean(dataset):
    """Clean up all that may go, as a program of its own; how many versions went."""
    return (
        lance_core.dataset(dataset.uri)
        .cleanup_old_versions(timedelta(0), delete_unverified=True, force=True)
        .old_versions
    )


def test_what_is_pinned_stays_until_the_block_ends(reader):
    with reader.pinned() as same:
        assert same is reader
        assert clean(reader) == 0
        assert reader.to_table() == OLD
        assert lance_core.dataset(reader.uri, 1).verify(level="full").is_ok
    assert reader.tags.list() == {}
    assert clean(reader) == 1
    with pytest.raises(NotFoundError):
        lance_core.dataset(reader.uri, 1)


def test_without_a_pin_it_goes(reader):
    assert clean(reader) == 1
    with pytest.raises(NotFoundError, match=r"\.lance"):
        reader.to_table()


def test_an_error_ends_it(reader):
    with pytest.raises(ZeroDivisionError), reader.pinned():
        raise ZeroDivisionError
    assert reader.tags.list() == {}


def test_it_keeps_the_version_it_began_with(reader):
    with reader.pinned():
        old = reader.checkout_version(1)
        reader.checkout_latest()
        assert clean(reader) == 0
        assert old.to_table() == OLD


def test_several_readers_of_one_version(reader):
    with reader.pinned():
        with pickle.loads(pickle.dumps(reader)).pinned() as copy:  # noqa: S301 - our own
            assert len(reader.tags.list()) == 2
            assert copy.to_table() == OLD
        assert clean(reader) == 0
    assert clean(reader) == 1


def test_branches(reader):
    branch = reader.create_branch("side")
    old = branch.checkout_version(("side", None))
    lance_core.write_dataset(NEW, branch, mode="overwrite")
    lance_core.write_dataset(NEW, branch, mode="append")
    branch.checkout_latest()
    middle = branch.checkout_version(("side", branch.version - 1))
    with middle.pinned():
        branch.cleanup_old_versions(timedelta(0), delete_unverified=True, force=True)
        assert middle.to_table() == NEW
        with pytest.raises(NotFoundError):
            old.checkout_version(("side", old.version))
    assert reader.tags.list() == {}


def test_what_is_gone_cannot_be_pinned(reader):
    clean(reader)
    with pytest.raises(VersionNotFoundError), reader.pinned():
        pass
    assert reader.tags.list() == {}


def test_detached_versions_need_no_tag(reader):
    operation = lance_core.LanceOperation.Append(lance_core.write_fragments(NEW, reader))
    detached = lance_core.LanceDataset.commit(reader, operation, read_version=1, detached=True)
    with detached.pinned():
        assert reader.tags.list() == {}
        clean(reader)
        assert detached.count_rows() == 105


def test_who_died_in_it_keeps_it_for_a_week():
    store = MemoryStore()
    commit(store, create(store, [1]))
    commit(store, overwrite(store, [2], read_version=1, uuid="two"))
    block = keeping(store, 1, uuid="dead", runtime=SYSTEM_RUNTIME)
    block.__enter__()  # and nothing ends it
    for days, left in [(6.9, [1, 2]), (7.1, [2])]:
        later = datetime.now(UTC) + timedelta(days=days)
        cleanup_old_versions(store, retain_versions=1, runtime=Runtime(now=lambda moment=later: moment))
        assert list_versions(store) == left
    assert ref_names(store, TAGS_FOLDER) == []


def race(*, at, pin_is_interrupted):
    """One of a pin and a clean-up happens at a call of the other; the calls of the other, and if it was kept."""
    store = MemoryStore()
    commit(store, create(store, [1]))
    commit(store, overwrite(store, [2], read_version=1, uuid="two"))
    snapshot, blocks = open_snapshot(store, 1), []

    def clean(line):
        cleanup_old_versions(line, older_than=timedelta(0), delete_unverified=True, force=True)

    def pin(line):
        block = keeping(line, 1, uuid="reader", runtime=SYSTEM_RUNTIME)
        try:
            block.__enter__()
        except VersionNotFoundError:
            return
        blocks.append(block)

    first, second = (pin, clean) if pin_is_interrupted else (clean, pin)

    def on_call(_method, _path):
        if len(faulty.calls) == at:
            second(store)

    faulty = FaultyStore(inner=store, on_call=on_call)
    first(faulty)
    if blocks:
        clean(store)
        assert read_rows(snapshot) == read_rows(open_snapshot(store, 1)) == [1]
        blocks.pop().__exit__(None, None, None)
        clean(store)
        assert list_versions(store) == [2]
        return len(faulty.calls), True
    assert list_versions(store) == [2]
    assert ref_names(store, TAGS_FOLDER) == []
    return len(faulty.calls), False


@pytest.mark.parametrize("pin_is_interrupted", [True, False])
def test_a_pin_beside_a_clean_up_holds_or_is_refused(pin_is_interrupted):
    calls, _ = race(at=0, pin_is_interrupted=pin_is_interrupted)
    ends = [race(at=at, pin_is_interrupted=pin_is_interrupted)[1] for at in range(1, calls + 1)]
    assert {*ends} == {True, False}
