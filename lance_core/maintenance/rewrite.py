"""Carry out the rewriting of fragments: anywhere, one task at a time, then one commit for all.

A task streams its live rows into new files, so memory does not grow with the fragments. Row ids and row versions of
tables with stable row ids move along.
"""

from __future__ import annotations

import uuid
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lance_core.errors import CommitConflictError, CommitOutcomeUnknownError, InvalidInputError
from lance_core.format.blobs import BlobView
from lance_core.format.operations import Rewrite, RewriteGroup
from lance_core.format.row_ids import encode_row_ids, encode_row_versions
from lance_core.format.transaction import Transaction
from lance_core.table.commit import commit
from lance_core.table.fragment_reader import FragmentReader
from lance_core.table.naming import naming
from lance_core.table.open_files import OpenFiles
from lance_core.table.scan import scan_fragment
from lance_core.table.scan_plan import plan_scan
from lance_core.table.snapshot import open_snapshot
from lance_core.table.stage import FileLimits, remove_staged, stage_fragments

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from lance_core.format.fragment import Fragment
    from lance_core.format.manifest import Manifest
    from lance_core.maintenance.plan import CompactionOptions, RewriteTask
    from lance_core.store.base import Store
    from lance_core.table.scan_plan import ScanPlan
    from lance_core.table.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteMetrics:
    """What a rewriting changed; names as in pylance.

    Attributes:
        fragments_removed: Fragments that were replaced.
        fragments_added: Fragments that replace them.
        files_removed: Data and deletion files that the new version does not need.
        files_added: Data files written.
    """

    fragments_removed: int = 0
    fragments_added: int = 0
    files_removed: int = 0
    files_added: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteResult:
    """What one task made.

    Attributes:
        read_version: Version the task was planned on.
        original_fragments: Fragments to replace.
        new_fragments: Staged fragments with their live rows, ids 0.
    """

    read_version: int
    original_fragments: tuple[Fragment, ...]
    new_fragments: tuple[Fragment, ...]

    @property
    def metrics(self) -> RewriteMetrics:
        """The numbers of this task."""
        return sum_metrics([self])


def sum_metrics(results: Sequence[RewriteResult]) -> RewriteMetrics:
    """The numbers of several tasks together."""
    old = [fragment for result in results for fragment in result.original_fragments]
    new = [fragment for result in results for fragment in result.new_fragments]
    return RewriteMetrics(
        fragments_removed=len(old),
        fragments_added=len(new),
        files_removed=sum(len(one.files) + (one.deletion_file is not None) for one in old),
        files_added=sum(len(one.files) for one in new),
    )


def execute_task(snapshot: Snapshot, task: RewriteTask, options: CompactionOptions) -> RewriteResult:
    """Write the live rows of a task's fragments into new files.

    Args:
        snapshot: The version the task was planned on.
        task: What to rewrite.
        options: How large the new files shall be.

    Raises:
        InvalidInputError: The task belongs to another version.
        CorruptDataError: A file is damaged; nothing is left behind.
    """
    if snapshot.version != task.read_version:
        raise InvalidInputError(f"the task is for version {task.read_version}, not {snapshot.version}")
    manifest = snapshot.manifest
    files = OpenFiles(snapshot.store)
    readers = [FragmentReader(files, fragment) for fragment in task.fragments]
    plan = plan_scan(
        manifest.schema,
        columns=None,
        filter=None,
        batch_size=options.batch_size,
        with_row_id=False,
        with_row_address=False,
        blob_view=BlobView.VALUES,
    )
    with naming(snapshot.store):
        new = stage_fragments(
            snapshot.store,
            manifest.schema,
            _live_rows(readers, plan),
            limits=_limits(task, options),
            data_storage_version=manifest.data_storage_version,
            new_uuid=lambda: uuid.uuid4().bytes,
        )
    if manifest.uses_stable_row_ids:
        new = _with_lineage(readers, new)
    return RewriteResult(read_version=task.read_version, original_fragments=task.fragments, new_fragments=new)


def commit_results(
    store: Store, results: Sequence[RewriteResult], *, properties: Mapping[str, str] | None = None
) -> Snapshot:
    """Publish what tasks made, all in one version.

    Args:
        store: The dataset.
        results: Results of tasks that were planned on one version; some or all of them.
        properties: Transaction properties.

    Raises:
        CommitConflictError: Another commit touched one of the fragments: plan again on the newest version. The new
            files are removed.
        InvalidInputError: No results, or results of several versions.
    """
    versions = {result.read_version for result in results}
    if len(versions) != 1:
        raise InvalidInputError(f"results of one version are committed together, these are of {sorted(versions)}")
    groups = tuple(
        RewriteGroup(old_fragments=one.original_fragments, new_fragments=one.new_fragments) for one in results
    )
    transaction = Transaction(
        read_version=versions.pop(),
        uuid=str(uuid.uuid4()),
        operation=Rewrite(groups=groups),
        transaction_properties=dict(properties or {}),
    )
    try:
        return commit(store, transaction)
    except CommitOutcomeUnknownError:
        raise
    except Exception:
        discard_results(store, results)
        raise


def discard_results(store: Store, results: Sequence[RewriteResult]) -> None:
    """Remove the files of results that will not be committed."""
    remove_staged(store, [fragment for result in results for fragment in result.new_fragments])


def _limits(task: RewriteTask, options: CompactionOptions) -> FileLimits:
    """A task makes one file, unless its rows fill several of the target size."""
    rows = sum(fragment.num_rows for fragment in task.fragments)
    num_files = max(rows // options.target_rows_per_fragment, 1)
    return FileLimits(max_rows_per_file=max(-(-rows // num_files), 1), max_bytes_per_file=options.max_bytes_per_file)


def _live_rows(readers: Sequence[FragmentReader], plan: ScanPlan) -> Iterator[pa.RecordBatch]:
    for reader in readers:
        yield from scan_fragment(reader, plan)


def _with_lineage(readers: Sequence[FragmentReader], new: Sequence[Fragment]) -> tuple[Fragment, ...]:
    """Row ids and versions of the live rows, cut at the new fragments."""
    ids = np.concatenate([reader.stable_row_ids[_live(reader)] for reader in readers])
    created = np.concatenate([reader.created_versions[_live(reader)] for reader in readers])
    updated = np.concatenate([reader.updated_versions[_live(reader)] for reader in readers])
    moved: list[Fragment] = []
    start = 0
    for fragment in new:
        rows = slice(start, start + fragment.physical_rows)
        start = rows.stop
        moved.append(
            replace(
                fragment,
                row_id_sequence=encode_row_ids(ids[rows]),
                created_at_version_sequence=encode_row_versions(created[rows]),
                last_updated_at_version_sequence=encode_row_versions(updated[rows]),
            )
        )
    return tuple(moved)


def _live(reader: FragmentReader) -> npt.NDArray[np.bool_]:
    mask = reader.live_mask(0, reader.fragment.physical_rows)
    return np.ones(reader.fragment.physical_rows, np.bool_) if mask is None else mask


def rewrite(
    snapshot: Snapshot,
    plan: Callable[[Manifest], Sequence[RewriteTask]],
    options: CompactionOptions,
    *,
    num_threads: int,
    conflict_retries: int,
    properties: Mapping[str, str] | None = None,
) -> tuple[Snapshot, RewriteMetrics]:
    """Plan, execute and commit; plan anew on the newest version when another commit touched the fragments.

    Args:
        snapshot: Version to begin with.
        plan: Manifest to tasks.
        options: How large the new files shall be.
        num_threads: Tasks executed at the same time.
        conflict_retries: How often to plan anew.
        properties: Transaction properties.

    Returns:
        The new version and what changed; the version given if there was nothing to do.

    Raises:
        CommitConflictError: Other commits touched the fragments each time.
    """
    store = snapshot.store
    retries_left = conflict_retries
    while True:
        tasks = plan(snapshot.manifest)
        if not tasks:
            return snapshot, RewriteMetrics()
        results = _execute_all(snapshot, tasks, options, num_threads)
        try:
            return commit_results(store, results, properties=properties), sum_metrics(results)
        except CommitConflictError as error:
            if not error.is_retryable or not retries_left:
                raise
        retries_left -= 1
        snapshot = open_snapshot(store)


def _execute_all(
    snapshot: Snapshot, tasks: Sequence[RewriteTask], options: CompactionOptions, num_threads: int
) -> list[RewriteResult]:
    """Execute tasks; if one fails, the others' files are removed."""
    with ThreadPoolExecutor(max_workers=num_threads) as pool:
        futures = [pool.submit(execute_task, snapshot, task, options) for task in tasks]
        wait(futures, return_when=FIRST_EXCEPTION)
        for future in futures:
            future.cancel()
    done = [one for one in futures if not one.cancelled()]
    failed = next((one.exception() for one in done if one.exception() is not None), None)
    results = [one.result() for one in done if one.exception() is None]
    if failed is not None:
        discard_results(snapshot.store, results)
        raise failed
    return results
