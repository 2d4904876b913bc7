"""Compaction as users see it: all at once, or planned here, executed anywhere and committed once."""

from __future__ import annotations

import json
import os
import warnings
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack

from lance_core.change.retries import commit_options, commit_work
from lance_core.common.frozen import frozen
from lance_core.common.signatures import check_options, with_options
from lance_core.common.unsupported import refuse_given
from lance_core.errors import IndexCoverageWarning, InvalidInputError, UnsupportedError
from lance_core.maintenance.compact import compact
from lance_core.maintenance.materialize import materialize_deletions
from lance_core.maintenance.plan import CompactionOptions, RewriteTask, make_options, plan_compaction
from lance_core.maintenance.plan import plan_materialization as plan_materialization_tasks
from lance_core.maintenance.rewrite import RewriteMetrics as CompactionMetrics
from lance_core.maintenance.rewrite import RewriteResult as InnerResult
from lance_core.maintenance.rewrite import commit_results, execute_task, execute_tasks, rewrite
from lance_core.methods.arguments import auto_cleanup_settings
from lance_core.methods.settings import delete_config_keys, update_config
from lance_core.values.fragment_metadata import FragmentMetadata, from_metadata, to_metadata

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence

    from lance_core.methods.protocols import OpenDataset
    from lance_core.table.snapshot import Snapshot

_Dataset = TypeVar("_Dataset", bound="OpenDataset")
_MAX_DEFAULT_THREADS = 4
_REFUSED = ("binary_copy_read_batch_bytes",)


class CompactionArguments(TypedDict, total=False):
    """Options of compaction, see `CompactionOptions`; None takes the table's config, else the default.

    Attributes:
        max_rows_per_group: Accepted, like ``io_buffer_size``: it would make no difference.
        io_buffer_size: Accepted.
        binary_copy_read_batch_bytes: Not supported.
    """

    target_rows_per_fragment: int | None
    max_bytes_per_file: int | None
    materialize_deletions: bool | None
    materialize_deletions_threshold: float | None
    batch_size: int | None
    max_source_fragments: int | None
    max_source_rows: int | None
    max_source_bytes: int | None
    excluded_fragment_ids: Iterable[int] | None
    compaction_mode: str | None
    max_memory_bytes: int | None
    data_storage_version: str | None
    max_rows_per_group: int | None
    io_buffer_size: int | None
    defer_index_remap: bool | None
    binary_copy_read_batch_bytes: int | None


@frozen(kw_only=True)
class CompactionTask:
    """Fragments to rewrite together; picklable and convertible to JSON.

    Attributes:
        read_version: Version the plan is for.
        fragments: The fragments.
        options: How to write the new files.
    """

    read_version: int
    fragments: tuple[FragmentMetadata, ...]
    options: CompactionOptions

    def execute(self, dataset: OpenDataset, *, new_uuid: Callable[[], bytes] | None = None) -> RewriteResult:
        """Write the new files; nobody sees them before `Compaction.commit`. Works in any process.

        Args:
            dataset: The dataset, at any version.
            new_uuid: 16 bytes for the name of a new file at each call, unlike all others; random if None. Not in
                pylance.
        """
        if dataset.version != self.read_version:
            dataset = dataset.reopened(self.read_version)
        task = RewriteTask(read_version=self.read_version, fragments=tuple(map(from_metadata, self.fragments)))
        chosen = {} if new_uuid is None else {"new_uuid": new_uuid}
        return _public(execute_task(dataset.snapshot, task, self.options, **chosen))

    def json(self) -> str:
        """Return the task as JSON."""
        options = {**asdict(self.options), "excluded_fragment_ids": sorted(self.options.excluded_fragment_ids)}
        fragments = [fragment.to_json() for fragment in self.fragments]
        return json.dumps({"read_version": self.read_version, "fragments": fragments, "options": options})

    @staticmethod
    def from_json(text: str) -> CompactionTask:
        """Read what `json` made.

        Raises:
            InvalidInputError: Something else.
        """
        with _reading_json("CompactionTask"):
            data = json.loads(text)
            options: dict[str, Any] = data["options"]
            options["excluded_fragment_ids"] = frozenset(options["excluded_fragment_ids"])
            return CompactionTask(
                read_version=data["read_version"],
                fragments=tuple(FragmentMetadata.from_json(text) for text in data["fragments"]),
                options=CompactionOptions(**options),
            )


@frozen(kw_only=True)
class CompactionPlan:
    """Plan of a compaction.

    Attributes:
        read_version: Version the plan is for.
        tasks: Independent tasks.
    """

    read_version: int
    tasks: tuple[CompactionTask, ...]

    def num_tasks(self) -> int:
        """Return the number of tasks."""
        return len(self.tasks)

    def json(self) -> str:
        """Return the plan as JSON."""
        tasks = [json.loads(task.json()) for task in self.tasks]
        return json.dumps({"read_version": self.read_version, "tasks": tasks})

    @staticmethod
    def from_json(text: str) -> CompactionPlan:
        """Read what `json` made.

        Raises:
            InvalidInputError: Something else.
        """
        with _reading_json("CompactionPlan"):
            data = json.loads(text)
            tasks = tuple(CompactionTask.from_json(json.dumps(task)) for task in data["tasks"])
            return CompactionPlan(read_version=data["read_version"], tasks=tasks)


@frozen(kw_only=True)
class RewriteResult:
    """Result of one task; picklable and convertible to JSON.

    Attributes:
        read_version: Version the plan was for.
        original_fragments: Fragments to replace.
        new_fragments: Staged fragments with their live rows.
    """

    read_version: int
    original_fragments: tuple[FragmentMetadata, ...]
    new_fragments: tuple[FragmentMetadata, ...]

    @property
    def metrics(self) -> CompactionMetrics:
        """The numbers of this task."""
        return _inner(self).metrics

    def json(self) -> str:
        """Return the result as JSON."""
        lists = {name: [result.to_json() for result in getattr(self, name)] for name in _FRAGMENT_LISTS}
        return json.dumps({"read_version": self.read_version, **lists})

    @staticmethod
    def from_json(text: str) -> RewriteResult:
        """Read what `json` made.

        Raises:
            InvalidInputError: Something else.
        """
        with _reading_json("RewriteResult"):
            data = json.loads(text)
            lists = {name: tuple(FragmentMetadata.from_json(text) for text in data[name]) for name in _FRAGMENT_LISTS}
            return RewriteResult(read_version=data["read_version"], **lists)


@contextmanager
def _reading_json(name: str) -> Generator[None]:
    """Errors of JSON that is none of ours, as lance_core's own."""
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInputError(f"cannot read the JSON of a {name}: {error!r}") from error


_FRAGMENT_LISTS = ("original_fragments", "new_fragments")


class Compaction:
    """Compaction in three steps, so that the second can run in other processes."""

    @staticmethod
    def plan(dataset: OpenDataset, options: Mapping[str, Any] | None = None) -> CompactionPlan:
        """Decide what to rewrite; reads nothing but the manifest.

        Args:
            dataset: Version to plan on.
            options: Arguments of `DatasetOptimizer.compact_files` by name.
        """
        chosen = _options(dataset, options or {})
        return _plan(dataset, plan_compaction(dataset.snapshot.manifest, chosen), chosen)

    @staticmethod
    def plan_materialization(dataset: OpenDataset, options: Mapping[str, Any] | None = None) -> CompactionPlan:
        """As `plan`, but only fragments with deleted rows (share above the threshold, default 0). Not in pylance."""
        chosen = _options(dataset, {"materialize_deletions_threshold": 0.0, **(options or {})})
        tasks = plan_materialization_tasks(dataset.snapshot.manifest, threshold=chosen.materialize_deletions_threshold)
        return _plan(dataset, tasks, chosen)

    @staticmethod
    def run(dataset: OpenDataset, plan: CompactionPlan, *, num_threads: int | None = None) -> tuple[RewriteResult, ...]:
        """Execute all tasks of a plan here; `commit` publishes what they made. Not in pylance.

        If a task fails or the caller is interrupted, the files of all tasks are removed.

        Args:
            dataset: The dataset, at any version.
            plan: The plan.
            num_threads: Tasks executed at the same time; they share the memory.
        """
        if not plan.tasks:
            return ()
        if dataset.version != plan.read_version:
            dataset = dataset.reopened(plan.read_version)
        tasks = [
            RewriteTask(read_version=task.read_version, fragments=tuple(map(from_metadata, task.fragments)))
            for task in plan.tasks
        ]
        threads = _threads(num_threads)
        return tuple(map(_public, execute_tasks(dataset.snapshot, tasks, plan.tasks[0].options, num_threads=threads)))

    @staticmethod
    def commit(
        dataset: OpenDataset,
        rewrites: Sequence[RewriteResult],
        options: Mapping[str, Any] | None = None,
        *,
        transaction_properties: Mapping[str, str] | None = None,
    ) -> CompactionMetrics:
        """Publish results in one version; the dataset object moves to it. No results make no version.

        Warns with `IndexCoverageWarning` if an index no longer covers the rows; see `DatasetOptimizer.compact_files`.

        Args:
            dataset: The dataset, at any version.
            rewrites: Results of tasks that were planned on one version; some or all of them.
            options: As for `plan`; only ``defer_index_remap`` matters.
            transaction_properties: Text for the history.

        Returns:
            What changed.

        Raises:
            CommitConflictError: Another commit touched one of the fragments; plan again on the newest version. The
                new files are removed.
            InvalidInputError: The results are for several versions.
        """
        if not rewrites:
            return CompactionMetrics()
        versions = {rewrite.read_version for rewrite in rewrites}
        if len(versions) > 1:
            raise InvalidInputError(f"can only commit results for one version at a time, not for {sorted(versions)}")
        version = versions.pop()
        read = dataset.snapshot if dataset.version == version else dataset.reopened(version).snapshot
        results = [_inner(rewrite) for rewrite in rewrites]
        defers_remap = _options(dataset, options or {}).defer_index_remap
        dataset.snapshot, metrics = commit_results(
            read, results, defers_remap=defers_remap, properties=transaction_properties
        )
        _warn_of_lost_coverage(metrics)
        return metrics

    @staticmethod
    def repeat(
        dataset: _Dataset,
        make: Callable[[_Dataset], Sequence[RewriteResult]],
        options: Mapping[str, Any] | None = None,
        *,
        conflict_retries: int | None = None,
        transaction_properties: Mapping[str, str] | None = None,
    ) -> CompactionMetrics:
        """Plan, run and commit; when other commits touched some of the fragments, commit the rest and begin anew.

        The dataset object moves to the new version. Warns like `commit`. Not in pylance.

        Args:
            dataset: Version to begin with.
            make: Plan on a version of the dataset and run the plan; no results mean that there is nothing to do.
            options: As for `commit`.
            conflict_retries: How often to begin anew; None for as often as the time allows (the environment variable
                ``LANCE_CORE_COMMIT_TIMEOUT`` in seconds, by default 600).
            transaction_properties: Text for the history.

        Raises:
            CommitConflictError: Other commits touched all fragments each time.
        """

        def make_inner(snapshot: Snapshot) -> list[InnerResult]:
            dataset.snapshot = snapshot
            return [_inner(result) for result in make(dataset)]

        dataset.snapshot, metrics = rewrite(
            dataset.snapshot,
            make_inner,
            conflict_retries=conflict_retries,
            defers_remap=_options(dataset, options or {}).defer_index_remap,
            properties=transaction_properties,
        )
        _warn_of_lost_coverage(metrics)
        return metrics

    @staticmethod
    def execute(dataset: OpenDataset, options: Mapping[str, Any] | None = None) -> CompactionMetrics:
        """Plan, execute and commit here."""
        given: Any = options or {}
        return DatasetOptimizer(dataset).compact_files(**given)


class DatasetOptimizer:
    """Maintenance of a dataset's files. Made by `LanceDataset.optimize`."""

    def __init__(self, dataset: OpenDataset) -> None:
        self._dataset = dataset

    @with_options(CompactionArguments)
    def compact_files(
        self,
        *,
        num_threads: int | None = None,
        conflict_retries: int | None = None,
        transaction_properties: Mapping[str, str] | None = None,
        **options: Unpack[CompactionArguments],
    ) -> CompactionMetrics:
        """Merge small fragments and drop deleted rows; the dataset object moves to the new version.

        Arguments that are not given come from the table's config (``lance.compaction.<name>``), else from the
        defaults. With nothing to do no version is made. Rows of rewritten fragments move behind those of fragments
        that stay, as with pylance.

        On tables with stable row ids most indices go on covering the rows. Others (those that know rows by fragment or
        address, and all indices of tables without stable row ids) no longer do: queries stay right and scan these rows.
        ``unindexed_rows`` of the result tells how many, and an `IndexCoverageWarning` says what to do.

        Args:
            num_threads: Tasks executed at the same time.
            conflict_retries: How often to plan anew when another commit touched all of the fragments; None for as often
                as the time allows.
            transaction_properties: Text for the history.
            **options: See `CompactionArguments`.

        Raises:
            CommitConflictError: Other commits touched the fragments each time.

        Examples:
            >>> table.insert([{"id": 5, "name": "Bonn", "height": 60}])
            >>> metrics = table.optimize.compact_files()
            >>> metrics.fragments_removed, metrics.fragments_added
            (2, 1)
        """
        check_options("compact_files", CompactionArguments, options)
        return self._run(compact, options, num_threads, conflict_retries, transaction_properties)

    @with_options(CompactionArguments)
    def materialize_deletions(
        self,
        *,
        threshold: float = 0.0,
        num_threads: int | None = None,
        conflict_retries: int | None = None,
        transaction_properties: Mapping[str, str] | None = None,
        **options: Unpack[CompactionArguments],
    ) -> CompactionMetrics:
        """Rewrite fragments without their deleted rows, and touch no others; indices as in `compact_files`.

        Not in pylance.

        Args:
            threshold: Share of deleted rows above which a fragment is rewritten; by default any.
            num_threads: As in `compact_files`.
            conflict_retries: As in `compact_files`.
            transaction_properties: As in `compact_files`.
            **options: max_bytes_per_file, batch_size, target_rows_per_fragment.
        """
        check_options("materialize_deletions", CompactionArguments, options)
        given = {**options, "materialize_deletions_threshold": threshold}
        return self._run(materialize_deletions, given, num_threads, conflict_retries, transaction_properties)

    def _run(
        self,
        work: Callable[..., tuple[Snapshot, CompactionMetrics]],
        options: Mapping[str, Any],
        num_threads: int | None,
        conflict_retries: int | None,
        properties: Mapping[str, str] | None,
    ) -> CompactionMetrics:
        self._dataset.snapshot, metrics = work(
            self._dataset.snapshot,
            _options(self._dataset, options),
            num_threads=_threads(num_threads),
            conflict_retries=conflict_retries,
            properties=properties,
        )
        _warn_of_lost_coverage(metrics, stacklevel=4)
        return metrics

    def enable_auto_cleanup(self, auto_cleanup_config: Mapping[str, int]) -> None:
        """Let commits of pylance clean up; the dataset object moves to the new version.

        Commits of lance_core do not: `LanceDataset.cleanup_old_versions` does when it is called. With a tagged version
        that is old enough, clean-up of pylance 14.0.2 fails each time and removes nothing.

        Args:
            auto_cleanup_config: ``interval``: after how many versions; ``older_than_seconds``: what is removed.
        """
        update_config(self._dataset, auto_cleanup_settings(auto_cleanup_config, "auto_cleanup_config"))

    def disable_auto_cleanup(self) -> None:
        """Let commits of pylance no longer clean up; the dataset object moves to the new version."""
        delete_config_keys(self._dataset, auto_cleanup_settings({}))

    def optimize_indices(
        self,
        *,
        index_names: Sequence[str] | None = None,
        num_indices_to_merge: int | None = None,
        retrain: bool = False,
        conflict_retries: int | None = None,
    ) -> list[str]:
        """Make indices cover all fragments; the dataset object moves to the new version.

        Fragments that an index does not cover become a segment of it. Segments are merged where it pays: the newest
        with older ones that are not much larger. With nothing to do no version is made. Indices of kinds that
        lance_core does not build are left as they are: queries read fragments that they do not cover, and pylance
        brings them up to date. An index that cannot be read does not stop the others.

        Args:
            index_names: Only these.
            num_indices_to_merge: Merge this number of segments, the newest; with 0, new fragments become a segment of
                their own.
            retrain: Build the indices again from all rows, in one segment each; also repairs damaged ones.
            conflict_retries: How often to do it anew when another commit rewrote the fragments.

        Returns:
            Names of the indices that were written.

        Raises:
            UnsupportedError: One of the names is of a kind that lance_core does not build.
            NotFoundError: One of them is of none.
            CorruptDataError: An index is damaged; all others were optimized.
        """
        from lance_core.change.index_upkeep import OptimizeIndices, check_num_to_merge  # noqa: PLC0415 rarely needed

        check_num_to_merge(num_indices_to_merge)
        work = OptimizeIndices(names=index_names, num_to_merge=num_indices_to_merge, retrain=retrain)
        if not work.has_work(self._dataset.snapshot):
            return []
        self._dataset.snapshot = commit_work(self._dataset.snapshot, work, commit_options(conflict_retries))
        work.raise_failed()
        return list(work.optimized)


def _warn_of_lost_coverage(metrics: CompactionMetrics, stacklevel: int = 3) -> None:
    if metrics.index_advice is not None:
        warnings.warn(metrics.index_advice, IndexCoverageWarning, stacklevel=stacklevel)


def _options(dataset: OpenDataset, given: Mapping[str, Any]) -> CompactionOptions:
    names = set(CompactionOptions.__dataclass_fields__)
    unknown = sorted(set(given) - set(CompactionArguments.__annotations__) - names)
    if unknown:
        raise InvalidInputError(f"unknown compaction option {', '.join(map(repr, unknown))}")
    refuse_given("compact_files", **{name: given[name] for name in _REFUSED if name in given})
    chosen = {name: value for name, value in given.items() if name in names}
    if chosen.get("excluded_fragment_ids") is not None:
        chosen["excluded_fragment_ids"] = frozenset(chosen["excluded_fragment_ids"])
    manifest = dataset.snapshot.manifest
    options = make_options(chosen, manifest.config)
    if options.defer_index_remap and manifest.uses_stable_row_ids:
        raise UnsupportedError(
            "cannot defer the remap of indices (defer_index_remap) on a table with stable row ids; leave the option "
            "out: most indices of such a table know rows by id and need no remap",
            path=dataset.uri,
        )
    return options


def _threads(num_threads: int | None) -> int:
    if num_threads is not None and num_threads < 1:
        raise InvalidInputError("'num_threads' must be at least 1")
    return num_threads or min(os.cpu_count() or 1, _MAX_DEFAULT_THREADS)


def _plan(dataset: OpenDataset, tasks: Sequence[RewriteTask], options: CompactionOptions) -> CompactionPlan:
    public = [
        CompactionTask(
            read_version=task.read_version, fragments=tuple(map(to_metadata, task.fragments)), options=options
        )
        for task in tasks
    ]
    return CompactionPlan(read_version=dataset.version, tasks=tuple(public))


def _public(result: InnerResult) -> RewriteResult:
    return RewriteResult(
        read_version=result.read_version,
        original_fragments=tuple(map(to_metadata, result.original_fragments)),
        new_fragments=tuple(map(to_metadata, result.new_fragments)),
    )


def _inner(result: RewriteResult) -> InnerResult:
    return InnerResult(
        read_version=result.read_version,
        original_fragments=tuple(map(from_metadata, result.original_fragments)),
        new_fragments=tuple(map(from_metadata, result.new_fragments)),
    )
