"""Let other commits and clean-ups happen between any two store calls of a commit.

Whatever happens: each version holds what the acknowledged operations make of the version before it, an operation that
raised has changed nothing, and every version that is left can be read.
"""

import contextlib
from datetime import UTC, datetime, timedelta
from itertools import count, product

import pytest

from lance_core.errors import CommitOutcomeUnknownError, LanceError
from lance_core.format.table.operations import ReserveFragments, Restore, Rewrite, RewriteGroup, UpdateConfig, UpdateMap
from lance_core.maintenance.cleanup import cleanup_old_versions
from lance_core.store.memory import MemoryStore
from lance_core.table.commit import commit
from lance_core.table.refs import create_tag, list_tags
from lance_core.table.runtime import Runtime
from lance_core.table.snapshot import list_versions, open_snapshot, read_transaction
from lance_core.testing.faulty_store import FaultyStore
from lance_core.testing.tables import append, create, delete, overwrite, read_rows, stage_rows, transaction

START = list(range(6))


class World:
    """A toy table and a model of what every version must hold."""

    def __init__(self):
        ticks, numbers = count(), count(1)
        self.runtime = Runtime(
            now=lambda: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=next(ticks)),
            sleep_s=lambda _: None,
            random_u63=lambda: next(numbers),
        )
        self.store = MemoryStore(now=lambda: datetime(2026, 1, 1, tzinfo=UTC))
        self.effects = {}
        self.acknowledged = set()
        commit(self.store, create(self.store, START, uuid="create"), runtime=self.runtime)
        commit(self.store, append(self.store, [6], read_version=1, uuid="second"), runtime=self.runtime)
        self.contents = {1: START, 2: [*START, 6]}

    def run(self, name, uuid, store=None):
        """Carry out an operation that was prepared on the newest version."""
        store = store or self.store
        if name == "cleanup":
            cleanup_old_versions(
                store, older_than=timedelta(0), error_if_tagged_old_versions=False, runtime=self.runtime
            )
            return
        ours, effect = self.prepare(name, uuid)
        self.effects[uuid] = effect
        try:
            commit(store, ours, runtime=self.runtime)
            self.acknowledged.add(uuid)
        except CommitOutcomeUnknownError:
            # The version restored stays, kept by a tag, when ours is cleaned up: if later ones were rewritten, nothing
            # tells whether they go back to ours.
            assert name == "restore", "nothing failed here, so the outcome must be known"
        except LanceError:
            self.effects.pop(uuid)

    def prepare(self, name, uuid):
        base = open_snapshot(self.store)
        rows, read_version = read_rows(base), base.version
        match name:
            case "append":
                value = 100 + len(self.effects)
                ours = append(self.store, [value], read_version=read_version, uuid=uuid)
                return ours, lambda before: [*before, value]
            case "delete 1" | "delete 2":
                value = int(name[-1])
                ours = delete(base, [value], uuid=uuid, new_id=self.runtime.random_u63)
                return ours, lambda before: [row for row in before if row != value]
            case "delete all":
                return delete(base, rows, uuid=uuid), lambda before: [row for row in before if row not in rows]
            case "overwrite":
                return overwrite(self.store, [50], read_version=read_version, uuid=uuid), lambda _: [50]
            case "rewrite":
                group = RewriteGroup(
                    old_fragments=tuple(base.manifest.fragments),
                    new_fragments=(stage_rows(self.store, rows, name=uuid),) if rows else (),
                )
                return transaction(Rewrite(groups=(group,)), read_version, uuid=uuid), lambda before: before
            case "restore":
                version = list_versions(self.store)[0]
                rows = read_rows(open_snapshot(self.store, version))
                return transaction(Restore(version=version), read_version, uuid=uuid), lambda _: rows
            case _:
                update = UpdateConfig(config_updates=UpdateMap(update_entries={uuid: "set"}))
                return transaction(update, read_version, uuid=uuid), lambda before: before

    def check(self):
        versions = list_versions(self.store)
        known = dict(self.contents)
        transactions = {version: read_transaction(self.store, version) for version in versions}
        history = {version: made_by.uuid for version, made_by in transactions.items()}
        for version in versions:
            if version not in known and version - 1 in known:
                if isinstance(transactions[version].operation, ReserveFragments):  # a rewrite may fail after it
                    known[version] = known[version - 1]
                    continue
                assert history[version] in self.effects, "who raised has changed nothing"
                known[version] = sorted(self.effects[history[version]](known[version - 1]))
            rows = read_rows(open_snapshot(self.store, version))
            if version in known:
                assert rows == known[version]
        assert len(set(history.values())) == len(history)
        for tag in list_tags(self.store).values():
            read_rows(open_snapshot(self.store, tag.version))


COMMITS = ["append", "delete 1", "delete 2", "delete all", "overwrite", "rewrite", "restore", "config"]


def interleave(ours, at):
    """Run ours, with the other operations at the given numbers of store calls; the number of calls it made."""
    world = World()
    pending = sorted(at)

    def on_call(_method, _path):
        while pending and len(faulty.calls) >= pending[0][0]:
            number, name = pending.pop(0)
            world.run(name, f"theirs {number} {name}")

    faulty = FaultyStore(inner=world.store, on_call=on_call)
    world.run(ours, "ours", store=faulty)
    world.check()
    if world.acknowledged >= {"ours"} and not any(name == "cleanup" for _, name in at):
        uuids = [read_transaction(world.store, version).uuid for version in list_versions(world.store)]
        assert "ours" in uuids
    return len(faulty.calls)


@pytest.mark.parametrize("ours", [*COMMITS, "cleanup"])
def test_one_interruption(ours):
    calls = interleave(ours, [])
    for number, theirs in product(range(1, calls + 1), [*COMMITS, "cleanup"]):
        interleave(ours, [(number, theirs)])
    assert calls >= 5


@pytest.mark.parametrize("ours", COMMITS)
def test_commits_and_a_clean_up(ours):
    """The race in which a clean-up frees the version number that is just being taken."""
    calls = interleave(ours, [])
    for theirs in ("append", "delete 1", "rewrite"):
        for first in range(1, calls + 1):
            for second in range(first, calls + 1):
                interleave(ours, [(first, theirs), (first, "append"), (second, "cleanup")])


def test_tag_during_clean_up_never_dangles():
    world = World()
    faulty = FaultyStore(inner=world.store)
    cleanup_old_versions(faulty, older_than=timedelta(0), runtime=world.runtime)
    tagged = 0
    for number in range(1, len(faulty.calls) + 1):
        tagged += tag_at(number)
    assert tagged > 3


def tag_at(number):
    """Whether a tag that is made at a store call of a clean-up is there afterwards."""
    world = World()

    def on_call(_method, _path):
        if len(faulty.calls) == number:
            with contextlib.suppress(LanceError):
                create_tag(world.store, "t", 1)

    faulty = FaultyStore(inner=world.store, on_call=on_call)
    with contextlib.suppress(LanceError):
        cleanup_old_versions(faulty, older_than=timedelta(0), runtime=world.runtime)
    world.check()
    return bool(list_tags(world.store))
