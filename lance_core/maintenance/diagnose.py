"""Turn what a look at a table found into the plan of a repair. Nothing is written.

Whatever a step removes is looked at once more here: it goes only if it is certainly missing or damaged, not because a
store did not answer or because lance_core does not know a feature.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pyroaring import BitMap

from lance_core.common.frozen import mutable, replace
from lance_core.errors import CorruptDataError, LanceError, NotFoundError
from lance_core.file.integrity import check_file
from lance_core.format.table.fragment import TOMBSTONE_FIELD_ID
from lance_core.format.table.paths import (
    BRANCHES_FOLDER,
    DAMAGED_FOLDER,
    TAGS_FOLDER,
    TRANSACTIONS_FOLDER,
    branch_path,
    data_file_path,
    deletion_file_path,
    manifest_path,
    tag_path,
    transaction_path,
)
from lance_core.format.table.transaction import decode_transaction
from lance_core.maintenance.cleanup import explain_cleanup_old_versions
from lance_core.maintenance.repair_plan import RepairPlan, RepairStep
from lance_core.maintenance.salvage import Salvage, find_salvage, lost_rows
from lance_core.maintenance.verify import audit_indices, verify_table
from lance_core.store.external_manifest import ExternalManifestStore
from lance_core.table.branches import get_branch
from lance_core.table.locations import branch_of, branch_store, object_sizes, with_bases
from lance_core.table.publish import brought_fragments, check_files
from lance_core.table.rebase import load_deletions
from lance_core.table.refs import KEEPING_PREFIX, get_tag, ref_names
from lance_core.table.runtime import SYSTEM_RUNTIME
from lance_core.table.snapshot import decode_version, find_versions

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from lance_core.format.table.fragment import DataFile, Fragment
    from lance_core.format.table.manifest import Manifest
    from lance_core.maintenance.verify_report import VerifyProblem
    from lance_core.store.base import Store
    from lance_core.table.runtime import Runtime

_UNFINISHED_AGE = timedelta(days=1)
"""Tags of running work and branches without a version are left over if they are older."""
_LOOKBACK = 100
"""Versions in which an older deletion file is looked for."""
_BY_FRAGMENT = {"data_file", "checksum", "deletion_file"}
_SYSTEM_INDEX_PREFIX = "__"
_MAX_RANGES = 5
"""Ranges of lost rows that a step tells."""


@mutable(kw_only=True)
class _Diagnosis:
    """A table, its problems, and those that a step repairs."""

    store: Store
    runtime: Runtime
    numbers: tuple[int, ...]
    problems: list[VerifyProblem]
    damaged: list[int] = field(default_factory=list[int])
    explained: set[int] = field(default_factory=set[int])
    """Positions in ``problems`` of those that a step repairs."""

    def readable(self) -> list[int]:
        """Versions whose manifest can be read, ascending."""
        return [number for number in self.numbers if number not in self.damaged]

    def take(self, kinds: Collection[str], version: int | None) -> Iterator[tuple[int, VerifyProblem]]:
        """Yield the problems of some kinds in a version, with their positions."""
        for position, problem in enumerate(self.problems):
            if problem.kind in kinds and problem.version == version:
                yield position, problem


def plan_repair(
    store: Store,
    *,
    level: str = "quick",
    progress: Callable[[str, int, int], None] | None = None,
    runtime: Runtime = SYSTEM_RUNTIME,
) -> RepairPlan:
    """Plan the repair of a branch.

    Args:
        store: Where the table lies.
        level: How closely it is looked at, as in `verify_table`; indices are always compared with the columns.
        progress: As in `verify_table`.
        runtime: Clock.

    Raises:
        DatasetNotFoundError: There is no table.
        InvalidInputError: There is no such level.
    """
    report = verify_table(store, level=level, max_problems=sys.maxsize, progress=progress)
    try:
        numbers = find_versions(store).numbers
    except CorruptDataError:  # names of both schemes
        numbers = ()
    diagnosis = _Diagnosis(store=store, runtime=runtime, numbers=numbers, problems=report.problems)
    steps = list(_manifest_steps(diagnosis))
    version = diagnosis.readable()[-1] if diagnosis.readable() else None
    if version is None or _is_beyond_repair(diagnosis, version):
        return RepairPlan(uri=store.uri, version=None, steps=(), unrepaired=tuple(report.problems))
    manifest = decode_version(store, version)
    redone = list(_redone(diagnosis, manifest))
    steps = [*(replace(step, loss="") for step in steps), *redone] if redone else steps
    fragment_steps = list(_fragment_steps(diagnosis, manifest))
    steps += [*fragment_steps, *_tag_steps(diagnosis), *_branch_steps(diagnosis)]
    repaired = _repaired(manifest, fragment_steps)
    steps += _index_steps(diagnosis, manifest, repaired, nulled=_nulled_fields(fragment_steps))
    if not diagnosis.damaged:
        steps += _orphan_steps(diagnosis)
    unrepaired = [problem for number, problem in enumerate(diagnosis.problems) if number not in diagnosis.explained]
    return RepairPlan(uri=store.uri, version=manifest.version, steps=tuple(steps), unrepaired=tuple(unrepaired))


def _is_beyond_repair(diagnosis: _Diagnosis, version: int) -> bool:
    """Return whether the newest version cannot be told: for a store, an unknown feature or a table of versions."""
    is_unreadable = any(position not in diagnosis.explained for position, _ in diagnosis.take({"manifest"}, version))
    is_decided_elsewhere = bool(diagnosis.damaged) and isinstance(branch_of(diagnosis.store)[0], ExternalManifestStore)
    return is_unreadable or is_decided_elsewhere or any(diagnosis.take({"store"}, None))


# ------------------------------------------------------------------------------------------------------------ versions


def _manifest_steps(diagnosis: _Diagnosis) -> Iterator[RepairStep]:
    """Yield a step for each manifest that is certainly damaged."""
    reasons: dict[int, str] = {}
    for number in diagnosis.numbers:
        for position, problem in diagnosis.take({"manifest"}, number):
            if _is_damaged(diagnosis.store, number):
                diagnosis.explained.add(position)
                reasons[number] = problem.message
    diagnosis.damaged = sorted(reasons)
    newest = max(diagnosis.readable(), default=0)
    for number, reason in sorted(reasons.items()):
        is_lost = number > newest
        yield RepairStep(
            kind="manifest",
            target=f"version {number}",
            problem=reason,
            action=f"its manifest is moved to {DAMAGED_FOLDER}/",
            outcome="removed",
            loss=f"what it changed is lost; version {newest} becomes the newest" if is_lost else "",
            path=manifest_path(number, find_versions(diagnosis.store).naming),
        )


def _is_damaged(store: Store, number: int) -> bool:
    try:
        decode_version(store, number)
    except CorruptDataError:
        return True
    except (LanceError, OSError):
        return False
    return False


def _redone(diagnosis: _Diagnosis, base: Manifest) -> Iterator[RepairStep]:
    """Yield the step that commits a lost version again, if the file of its transaction tells what it was."""
    lost = [number for number in diagnosis.damaged if number > base.version]
    if lost != [base.version + 1]:
        return
    naming = find_versions(diagnosis.store).naming
    folder = {info.path: info.modified for info in diagnosis.store.list("_versions")}
    since = folder.get(manifest_path(base.version, naming))
    candidates = [
        info.path
        for info in diagnosis.store.list(TRANSACTIONS_FOLDER)
        if since is not None and info.modified >= since and info.path != transaction_path(base.transaction_file)
    ]
    if len(candidates) != 1:
        return
    (path,) = candidates
    try:
        transaction = decode_transaction(diagnosis.store.get(path), path=path)
        check_files(diagnosis.store, transaction.operation, base)
    except (LanceError, OSError):
        return
    rows = sum(fragment.physical_rows for fragment in brought_fragments(transaction.operation))
    yield RepairStep(
        kind="commit",
        target=path,
        problem=f"version {lost[0]} is lost, and this is its transaction ({rows:,} rows in the fragments it brings)",
        action="it is committed again",
        outcome="committed",
        path=path,
    )


# ----------------------------------------------------------------------------------------------------------- fragments


def _fragment_steps(diagnosis: _Diagnosis, manifest: Manifest) -> Iterator[RepairStep]:
    by_fragment: dict[int, list[tuple[int, VerifyProblem]]] = defaultdict(list)
    for position, problem in diagnosis.take(_BY_FRAGMENT, manifest.version):
        if problem.fragment_id is not None:
            by_fragment[problem.fragment_id].append((position, problem))
    unreadable: dict[int | None, list[int]] = defaultdict(list)
    for position, problem in diagnosis.take({"values"}, manifest.version):
        unreadable[problem.fragment_id].append(position)
    store = with_bases(diagnosis.store, manifest)
    for fragment in manifest.fragments.select(list(by_fragment)):
        problems = by_fragment[fragment.id]
        lost = [file for file in fragment.files if _is_lost(store, file, [problem for _, problem in problems])]
        step = (
            _salvaging(store, manifest, fragment, lost) or _without_files(manifest, fragment, lost)
            if lost
            else _without_deletions(diagnosis, store, fragment)
        )
        if step is not None:
            diagnosis.explained.update(position for position, _ in problems)
            diagnosis.explained.update(unreadable[fragment.id] if lost else ())
            yield replace(step, problem="; ".join(f"{problem.message} [{problem.path}]" for _, problem in problems))


def _is_lost(store: Store, file: DataFile, problems: list[VerifyProblem]) -> bool:
    """Return whether a data file is certainly missing, or has other bytes than it was written with."""
    path = data_file_path(file)
    kinds = {problem.kind for problem in problems if problem.path == path}
    if not kinds:
        return False
    try:
        (size,) = object_sizes(store, [path])
        if file.file_size_bytes and size != file.file_size_bytes:
            return True
        if "checksum" in kinds:
            check_file(store.reader(path))
    except (NotFoundError, CorruptDataError):
        return True
    except (LanceError, OSError):
        return False
    return False


def _salvaging(store: Store, manifest: Manifest, fragment: Fragment, lost: list[DataFile]) -> RepairStep | None:
    """Return the step that keeps the rows of damaged files that can be read; None if that is not possible."""
    salvages: list[Salvage] = []
    lost_offsets, losses, values_lost = BitMap(), list[str](), 0
    try:
        live = BitMap(range(fragment.physical_rows)) - load_deletions(store, fragment)
        for file in lost:
            columns = None if file == fragment.files[0] else _nullable_columns(manifest, [file])
            num_rows, may_be_null = fragment.physical_rows, columns is not None
            salvage = find_salvage(store, manifest.schema, file, num_rows=num_rows, may_be_null=may_be_null)
            if salvage is None:
                return None
            salvages.append(salvage)
            lost_offsets |= lost_rows(salvage)
            if columns is not None:
                nulls = sum(len(BitMap(rows) & live) for rows in salvage.damaged())
                values_lost += nulls * len(columns)
                losses.append(f"the values of {', '.join(columns)} in {nulls:,} rows are lost")
    except (LanceError, OSError):
        return None
    if not live - lost_offsets:
        return None
    rows_lost = len(live & lost_offsets)
    if rows_lost:
        losses.append(f"{rows_lost:,} of {len(live):,} rows of fragment {fragment.id} are lost: {_ranges(salvages)}")
    return _fragment_step(
        fragment,
        action="rows that can be read are written to a new file",
        outcome="salvaged",
        loss="; ".join(losses),
        rows_lost=rows_lost,
        values_lost=values_lost,
        salvages=tuple(salvages),
    )


def _ranges(salvages: list[Salvage]) -> str:
    """Return the first ranges of rows that are lost, counted from the first row of the fragment."""
    ranges = [rows for salvage in salvages if not salvage.becomes_null for rows in salvage.damaged()]
    text = ", ".join(f"{rows.start:,} to {rows.stop - 1:,}" for rows in ranges[:_MAX_RANGES])
    return text if len(ranges) <= _MAX_RANGES else f"{text} and {len(ranges) - _MAX_RANGES:,} more ranges"


def _without_files(manifest: Manifest, fragment: Fragment, lost: list[DataFile]) -> RepairStep:
    """Return the step that makes values null, or else removes the fragment.

    The first file is the one that the rows were written with. Without it there is little left of them.
    """
    remaining = tuple(file for file in fragment.files if file not in lost)
    deleted = 0 if fragment.deletion_file is None else fragment.deletion_file.num_deleted_rows
    live = fragment.physical_rows - deleted
    columns = None if fragment.files[0] in lost else _nullable_columns(manifest, lost)
    step = _fragment_step(
        fragment,
        action="it is removed",
        outcome="removed",
        loss=f"{live:,} rows are lost: all of fragment {fragment.id}",
        rows_lost=live,
    )
    if columns is None:
        return step
    return replace(
        step,
        action=f"values of {', '.join(columns)} become null",
        outcome="nulled",
        loss=f"the values of {', '.join(columns)} in {live:,} rows are lost",
        rows_lost=0,
        values_lost=live * len(columns),
        updated=replace(fragment, files=remaining),
    )


def _nullable_columns(manifest: Manifest, lost: list[DataFile]) -> list[str] | None:
    """Return the columns that lie in lost files only, if all of them may be null; else None."""
    ids = {field_id for file in lost for field_id in file.fields if field_id != TOMBSTONE_FIELD_ID}
    columns: list[str] = []
    for top in manifest.schema.fields:
        inner = {field.id for field in top.walk()}
        if inner & ids:
            if not top.nullable or not inner <= ids:
                return None
            columns.append(top.name)
            ids -= inner
    return columns if columns and not ids else None


def _without_deletions(diagnosis: _Diagnosis, store: Store, fragment: Fragment) -> RepairStep | None:
    """Return the step that takes deletions of an older version, or none, for those that cannot be read."""
    file = fragment.deletion_file
    if file is None:
        return None
    try:
        deleted = len(load_deletions(store, fragment))
    except (CorruptDataError, NotFoundError):
        pass
    except (LanceError, OSError):
        return None
    else:
        return _empty_fragment(fragment) if deleted >= fragment.physical_rows else None
    older, version = _older_deletions(diagnosis, store, fragment)
    returned = file.num_deleted_rows - (0 if older.deletion_file is None else older.deletion_file.num_deleted_rows)
    source = "none of its rows counts as deleted" if version is None else f"deletions of version {version} are taken"
    return _fragment_step(
        fragment,
        action=source,
        outcome="undeleted",
        loss=f"{returned:,} deleted rows come back",
        rows_returned=returned,
        updated=replace(fragment, deletion_file=older.deletion_file),
        path=deletion_file_path(fragment.id, file),
    )


def _empty_fragment(fragment: Fragment) -> RepairStep:
    return _fragment_step(fragment, action="it is removed, for it has no row", outcome="removed")


def _fragment_step(fragment: Fragment, *, action: str, outcome: str, **more: Any) -> RepairStep:
    """Return a step about a fragment; the problem is told by what found it."""
    return RepairStep(
        kind="fragment",
        target=f"fragment {fragment.id}",
        problem="",
        fragment_id=fragment.id,
        action=action,
        outcome=outcome,
        **more,
    )


def _older_deletions(diagnosis: _Diagnosis, store: Store, fragment: Fragment) -> tuple[Fragment, int | None]:
    """Return the fragment with the newest deletions that can be read, and the version that has them."""
    for version in diagnosis.readable()[-2 : -_LOOKBACK - 2 : -1]:
        older = decode_version(diagnosis.store, version).fragments.find(fragment.id)
        if older is None or older.files[:1] != fragment.files[:1]:
            break
        if older.deletion_file == fragment.deletion_file:
            continue
        try:
            load_deletions(store, older)
        except (LanceError, OSError):
            continue
        return older, None if older.deletion_file is None else version
    return replace(fragment, deletion_file=None), None


def _repaired(manifest: Manifest, steps: list[RepairStep]) -> Manifest:
    """Return the version as it is after the steps about fragments."""
    updated = {step.updated.id: step.updated for step in steps if step.updated is not None}
    removed = [step.fragment_id for step in steps if step.updated is None and step.fragment_id is not None]
    return replace(manifest, fragments=manifest.fragments.replaced(removed=removed, updated=updated))


def _nulled_fields(steps: list[RepairStep]) -> set[int]:
    """Return the ids of fields some values of which become null."""
    salvages = [salvage for step in steps for salvage in step.salvages if salvage.becomes_null]
    return {field.id for salvage in salvages for top in salvage.fields.fields for field in top.walk()}


# ---------------------------------------------------------------------------------------------------- tags and branches


def _tag_steps(diagnosis: _Diagnosis) -> Iterator[RepairStep]:
    """Yield a step for each tag that is damaged, names a version that is not there, or was left by work that died."""
    root, own_branch = branch_of(diagnosis.store)
    problems = {problem.path: position for position, problem in diagnosis.take({"ref"}, None)}
    for name in ref_names(root, TAGS_FOLDER):
        position = problems.get(f"{TAGS_FOLDER}/{name}")
        reason = None
        try:
            tag = get_tag(root, name)
            if tag.branch == own_branch and tag.version not in diagnosis.readable():
                reason = f"it names version {tag.version}, which is not there"
            elif name.startswith(KEEPING_PREFIX) and _is_old(diagnosis, tag.created_at):
                reason = "it was left by a restore that died, and keeps its version from cleanup"
        except CorruptDataError as error:
            reason = error.message
        except (LanceError, OSError):
            continue
        if reason is not None:
            diagnosis.explained.update(() if position is None else (position,))
            path = tag_path(name)
            action = f"its file is moved to {DAMAGED_FOLDER}/"
            target = f"tag {name!r}"
            yield RepairStep(kind="tag", target=target, problem=reason, action=action, outcome="removed", path=path)


def _branch_steps(diagnosis: _Diagnosis) -> Iterator[RepairStep]:
    """Yield a step for each branch that has no version, and keeps the version that it was to begin from."""
    root, own_branch = branch_of(diagnosis.store)
    if own_branch is not None:
        return
    for name in ref_names(root, BRANCHES_FOLDER):
        try:
            if find_versions(branch_store(root, name)).numbers:
                continue
            created_at = get_branch(root, name).created_at
            if created_at is None or not _is_old(diagnosis, datetime.fromtimestamp(created_at, UTC)):
                continue
            reason = "it has no version: whoever made it died"
        except CorruptDataError as error:
            reason = f"it has no version, and {error.message}"
            diagnosis.explained.update(
                position
                for position, problem in diagnosis.take({"ref"}, None)
                if problem.path == f"{BRANCHES_FOLDER}/{name}"
            )
        except (LanceError, OSError):
            continue
        path = branch_path(name)
        action = f"its file is moved to {DAMAGED_FOLDER}/"
        target = f"branch {name!r}"
        yield RepairStep(kind="branch", target=target, problem=reason, action=action, outcome="removed", path=path)


# ---------------------------------------------------------------------------------------------------- indices, orphans


def _index_steps(
    diagnosis: _Diagnosis, manifest: Manifest, repaired: Manifest, *, nulled: set[int]
) -> Iterator[RepairStep]:
    """Yield a step for each index that is damaged, or does not agree with its column, or soon will not."""
    reasons = {
        index.name: "values of its column become null"
        for index in manifest.indices
        if not nulled.isdisjoint(index.fields)
    }
    wrong = list(diagnosis.take({"index"}, manifest.version))
    for index in manifest.indices:
        if index.name.startswith(_SYSTEM_INDEX_PREFIX):
            continue
        for position, problem in wrong:
            is_named = problem.path is None and f"index {index.name!r} " in problem.message
            if is_named or index.uuid_text in (problem.path or ""):
                diagnosis.explained.add(position)
                reasons.setdefault(index.name, problem.message)
    for problem in audit_indices(diagnosis.store, repaired):
        if problem.index_name is not None:
            reasons.setdefault(problem.index_name, problem.message)
    for name, reason in sorted(reasons.items()):
        action = "it is built again, or dropped if lance_core does not build its kind"
        yield RepairStep(kind="index", target=name, problem=reason, action=action, outcome="rebuilt")


def _orphan_steps(diagnosis: _Diagnosis) -> Iterator[RepairStep]:
    try:
        explained = explain_cleanup_old_versions(diagnosis.store, versions=(), error_if_tagged_old_versions=False)
    except (LanceError, OSError):
        return
    files = explained.candidate_files
    if files:
        yield RepairStep(
            kind="orphans",
            target="orphan files",
            problem=f"{len(files):,} files of no version, more than a week old",
            action=f"{explained.stats.bytes_removed:,} bytes are deleted",
            outcome="deleted",
        )


def _is_old(diagnosis: _Diagnosis, created_at: datetime | None) -> bool:
    return created_at is not None and created_at < diagnosis.runtime.now() - _UNFINISHED_AGE
