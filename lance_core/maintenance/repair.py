"""Carry out the steps of a repair that change files and versions; indices are for the layer above."""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING

from lance_core.change.retries import new_transaction
from lance_core.common.frozen import replace
from lance_core.format.table.operations import Delete
from lance_core.format.table.paths import DAMAGED_FOLDER
from lance_core.format.table.transaction import decode_transaction
from lance_core.maintenance.cleanup import cleanup_old_versions
from lance_core.maintenance.salvage import lost_rows, write_salvaged
from lance_core.table.commit import commit
from lance_core.table.locations import branch_of, with_bases, without_bases
from lance_core.table.new_ids import RANDOM_IDS
from lance_core.table.rebase import load_deletions, write_deletions
from lance_core.table.snapshot import open_snapshot

if TYPE_CHECKING:
    from lance_core.format.table.fragment import Fragment
    from lance_core.format.table.manifest import Manifest
    from lance_core.maintenance.repair_plan import RepairPlan, RepairStep
    from lance_core.store.base import Store


def execute_plan(store: Store, plan: RepairPlan) -> dict[str, str]:
    """Do the steps of a plan, except those about indices.

    Each moment is safe: a repair that was interrupted is planned anew and goes on.

    Args:
        store: The branch.
        plan: The plan, made just now.

    Returns:
        Outcome by target.
    """
    steps: defaultdict[str, list[RepairStep]] = defaultdict(list)
    for step in plan.steps:
        steps[step.kind].append(step)
    for path in _paths(steps["manifest"]):
        _move(without_bases(store), path)
    for path in _paths(steps["commit"]):
        commit(store, decode_transaction(store.get(path), path=path))
    _replace_fragments(store, plan, steps["fragment"])
    for path in _paths(steps["tag"] + steps["branch"]):
        _move(branch_of(store)[0], path)
    if steps["orphans"]:
        cleanup_old_versions(store, versions=(), error_if_tagged_old_versions=False)
    return {step.target: step.outcome for step in plan.steps if step.kind != "index"}


def _paths(steps: list[RepairStep]) -> list[str]:
    return [step.path for step in steps if step.path is not None]


def _move(store: Store, path: str) -> None:
    """Keep a small file outside of the table before it goes."""
    store.put(f"{DAMAGED_FOLDER}/{path}", store.get(path))
    store.delete([path])


def _replace_fragments(store: Store, plan: RepairPlan, steps: list[RepairStep]) -> None:
    """Commit fragments as they become, and without those that go, in one version."""
    if not steps:
        return
    read = open_snapshot(store)
    updated = [step.updated or _salvaged(store, read.manifest, step) for step in steps]
    operation = Delete(
        updated_fragments=tuple(fragment for fragment in updated if fragment is not None),
        deleted_fragment_ids=tuple(
            step.fragment_id
            for step, fragment in zip(steps, updated, strict=True)
            if fragment is None and step.fragment_id is not None
        ),
        predicate="repair",
    )
    version = read.version if plan.version is None else plan.version
    message = "; ".join(str(step) for step in steps)
    commit(store, new_transaction(version, operation, properties=None, message=message), read=read)


def _salvaged(store: Store, manifest: Manifest, step: RepairStep) -> Fragment | None:
    """Write damaged files of a fragment anew, and return it without the rows that are lost; None if it goes."""
    if not step.salvages or step.fragment_id is None:
        return None
    (fragment,) = manifest.fragments.select([step.fragment_id])
    files, deleted = list(fragment.files), load_deletions(store, fragment)
    num_deleted = len(deleted)
    for salvage in step.salvages:
        files[files.index(salvage.file)] = write_salvaged(with_bases(store, manifest), salvage)
        deleted.update(lost_rows(salvage))
    fragment = replace(fragment, files=tuple(files))
    if len(deleted) == num_deleted:
        return fragment
    new_id = partial(RANDOM_IDS.deletion_file, fragment.id)
    file, _ = write_deletions(store, fragment.id, deleted, read_version=manifest.version, new_id=new_id)
    return replace(fragment, deletion_file=file)
