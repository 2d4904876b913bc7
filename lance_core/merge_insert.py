"""Update, insert and delete rows by their keys; names and arguments as in pylance."""

from __future__ import annotations

from dataclasses import asdict
from time import perf_counter
from typing import TYPE_CHECKING, Any

from lance_core.change.ingest import read_input
from lance_core.change.key_join import KeyJoin
from lance_core.change.merging.merge import MergeWork
from lance_core.change.merging.merge_plan import (
    MergeOptions,
    WhenMatched,
    WriteMode,
    check_does_something,
    find_keys,
    plan_merge,
)
from lance_core.change.retries import commit_options, commit_work, new_transaction
from lance_core.change.targets import DEFAULT_TARGETS, Targets
from lance_core.common.frozen import replace
from lance_core.common.unsupported import with_refused
from lance_core.errors import InvalidInputError
from lance_core.methods.arguments import (
    DEFAULT_MAX_BYTES_PER_FILE,
    DEFAULT_MAX_ROWS_PER_FILE,
    file_limits,
    file_version,
    names_of,
)
from lance_core.table.naming import naming
from lance_core.values.operations import Transaction, from_inner

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import timedelta

    import pyarrow as pa

    from lance_core.change.merging.merge_plan import MergePlan
    from lance_core.methods.protocols import OpenDataset


@with_refused
class MergeInsertBuilder:
    """A merge of a source into a dataset; `LanceDataset.merge_insert` makes one.

    Each method changes the builder and returns it; the last of the ``when_matched_...`` methods counts. Rows whose key
    has a null are in no other table: they never match.

    Args:
        dataset: Target.
        on: Columns that make up the key; None for the primary key that the schema declares.
    """

    def __init__(self, dataset: OpenDataset, on: str | Iterable[str] | None = None) -> None:
        names = () if on is None else names_of(on, "on")
        self._dataset = dataset
        self._options = MergeOptions(on=names or None)
        self._conflict_retries: int | None = None
        self._retry_timeout: timedelta | None = None
        self._version: str | None = None
        self._targets = DEFAULT_TARGETS
        self._properties: Mapping[str, str] | None = None
        self._message: str | None = None
        with naming(dataset.snapshot.store):
            find_keys(self._options.on, dataset.snapshot.manifest.schema)

    # --------------------------------------------------------------------------------------------------- what to do

    def when_matched_update_all(self, condition: str | None = None) -> MergeInsertBuilder:
        """Update rows that are in both with the values of the source; columns that it lacks keep theirs.

        Args:
            condition: Update only rows for which this is true: SQL text, in which ``source.`` and ``target.`` stand
                before the names of columns.
        """
        return self._with(matched=WhenMatched.UPDATE, condition=condition)

    def when_matched_delete(self) -> MergeInsertBuilder:
        """Delete rows that are in both; the source needs the columns of the key only."""
        return self._with(matched=WhenMatched.DELETE, condition=None)

    def when_matched_fail(self) -> MergeInsertBuilder:
        """Do nothing at all, and raise InvalidInputError, if a row is in both."""
        return self._with(matched=WhenMatched.FAIL, condition=None)

    def when_not_matched_insert_all(self) -> MergeInsertBuilder:
        """Add rows that are only in the source; columns that it lacks are null."""
        return self._with(inserts=True)

    def when_not_matched_by_source_delete(self, expr: str | None = None) -> MergeInsertBuilder:
        """Delete rows that are only in the target.

        Args:
            expr: Delete only rows for which this is true: SQL text over columns of the target.
        """
        return self._with(deletes_others=True, delete_condition=expr)

    def within(self, expr: str | None) -> MergeInsertBuilder:
        """Look only at some rows of the target; the others neither match nor change. Not in pylance.

        Args:
            expr: Rows to look at: SQL text over columns of the target; None for all.
        """
        return self._with(within=expr)

    # ----------------------------------------------------------------------------------------------------- how to do it

    def conflict_retries(self, max_retries: int) -> MergeInsertBuilder:
        """Set how often the merge is retried when other commits conflict with it; 10 if not set."""
        commit_options(max_retries)
        self._conflict_retries = max_retries
        return self

    def retry_timeout(self, timeout: timedelta) -> MergeInsertBuilder:
        """Time after which it is not worked out anew; 30 seconds if not set."""
        self._retry_timeout = timeout
        return self

    def write_mode(self, mode: str) -> MergeInsertBuilder:
        """Set the way in which updated rows are written.

        Args:
            mode: ``rewrite_rows``, also chosen by ``auto``: whole rows move to new fragments; its cost grows with the
                rows. ``rewrite_columns``: fragments with matching rows get the source's columns in new files, which
                have all their rows; for a source that lacks wide columns, and updates only.
        """
        try:
            chosen = WriteMode(mode)
        except ValueError:
            names = ", ".join(mode.value for mode in WriteMode)
            raise InvalidInputError(f"the write mode must be one of {names}, not {mode!r}") from None
        return self._with(write_mode=chosen)

    def data_storage_version(self, version: str) -> MergeInsertBuilder:
        """File version of new files; that of the dataset if not set."""
        self._version = version
        return self

    def use_index(self, use_index: bool) -> MergeInsertBuilder:
        """Accepted: indices over columns of the key are used in any case."""
        del use_index
        return self

    def target_bases(self, bases: Sequence[str]) -> MergeInsertBuilder:
        """Write new rows to base paths, one file after the other.

        Args:
            bases: Names or addresses of base paths of the dataset.
        """
        if isinstance(bases, str) or not bases:
            raise InvalidInputError(f"'target_bases' must be a list of names or addresses, not {bases!r}")
        return self._with_targets(Targets(names=tuple(bases)))

    def target_all_bases(self, include_primary: bool = True) -> MergeInsertBuilder:
        """Write new rows to all base paths, one file after the other.

        Args:
            include_primary: The dataset itself is one of them.
        """
        return self._with_targets(Targets(all_bases=True, include_primary=include_primary))

    def commit_message(self, message: str) -> MergeInsertBuilder:
        """Text for the history. Not in pylance."""
        self._message = message
        return self

    def transaction_properties(self, properties: Mapping[str, str]) -> MergeInsertBuilder:
        """More text for the history. Not in pylance."""
        self._properties = properties
        return self

    # ------------------------------------------------------------------------------------------------------------ do it

    def execute(self, data_obj: Any, *, schema: pa.Schema | None = None) -> dict[str, int]:
        """Merge; the dataset moves to the version made.

        Args:
            data_obj: The source, as for `lance_core.write_dataset`; it is held in memory. It may lack columns.
            schema: Arrow schema to convert it to.

        Returns:
            ``{"num_inserted_rows": n, "num_updated_rows": n, "num_deleted_rows": n}``.

        Raises:
            InvalidInputError: Data that does not fit; several rows of the source for one of the target, or, unless rows
                that match are kept, several new ones of one key; a matching row that must not be there. Nothing is
                left behind.
            CommitConflictError: Other commits got in the way each time.
        """
        work = self._work(data_obj, schema)
        options = commit_options(
            self._conflict_retries, self._retry_timeout, properties=self._properties, message=self._message
        )
        self._dataset.snapshot = commit_work(self._dataset.snapshot, work, options, writes_files=True)
        return asdict(work.stats)

    def execute_uncommitted(
        self, data_obj: Any, *, schema: pa.Schema | None = None
    ) -> tuple[Transaction, dict[str, int]]:
        """Merge without committing; arguments and errors as in `execute`.

        Returns:
            The transaction for `LanceDataset.commit`, and the numbers. Rows that others add before it is committed are
            not looked at.
        """
        work = self._work(data_obj, schema)
        snapshot = self._dataset.snapshot
        try:
            operation = work.prepare(snapshot)
        except BaseException:
            work.forget()
            raise
        transaction = new_transaction(snapshot.version, operation, properties=self._properties, message=self._message)
        return from_inner(transaction), asdict(work.stats)

    def execute_batches(self, new_data: pa.RecordBatchReader) -> dict[str, int]:
        """As `execute`, for a stream of batches."""
        return self.execute(new_data)

    def execute_uncommitted_batches(self, new_data: pa.RecordBatchReader) -> tuple[Transaction, dict[str, int]]:
        """As `execute_uncommitted`, for a stream of batches."""
        return self.execute_uncommitted(new_data)

    def analyze_plan_batches(self, new_data: pa.RecordBatchReader) -> str:
        """As `analyze_plan`, for a stream of batches."""
        return self.analyze_plan(new_data)

    def analyze_plan(self, data_obj: Any, *, schema: pa.Schema | None = None) -> str:
        """Do all but the commit, and tell for people what was done and how long it took; new files are removed.

        Args:
            data_obj: As in `execute`.
            schema: As in `execute`.
        """
        work = self._work(data_obj, schema)
        began = perf_counter()
        try:
            work.prepare(self._dataset.snapshot)
        finally:
            work.forget()
        numbers = ", ".join(f"{name}={value}" for name, value in asdict(work.stats).items())
        took = f"{(perf_counter() - began) * 1000:.1f} ms"
        return f"{self.explain_plan(work.stream.schema)}\nAnalyzed: {numbers}, elapsed={took}"

    def explain_plan(self, schema: pa.Schema | None = None, verbose: bool = False) -> str:
        """Describe what `execute` would do.

        Args:
            schema: Arrow schema of the source; that of the dataset if None.
            verbose: Accepted; there is one text.
        """
        del verbose
        options = self._checked()
        with naming(self._dataset.snapshot.store):
            plan = plan_merge(options, self._dataset.snapshot.manifest.schema, schema or self._dataset.schema)
        return _explained(plan, len(self._dataset.snapshot.manifest.fragments))

    # ---------------------------------------------------------------------------------------------------------- parts

    def _with_targets(self, targets: Targets) -> MergeInsertBuilder:
        with naming(self._dataset.snapshot.store):
            targets.of(self._dataset.snapshot)  # which tells at once what is not there
        self._targets = targets
        return self

    def _with(self, **changes: Any) -> MergeInsertBuilder:
        self._options = replace(self._options, **changes)
        return self

    def _checked(self) -> MergeOptions:
        check_does_something(self._options)
        return self._options

    def _work(self, data: Any, schema: pa.Schema | None) -> MergeWork:
        snapshot = self._dataset.snapshot
        options = self._checked()
        with naming(snapshot.store):
            stream = read_input(data, schema)
            plan = plan_merge(options, snapshot.manifest.schema, stream.schema)  # before the data is read
            version = file_version(self._version, snapshot)
        return MergeWork(
            options=options,
            stream=stream,
            limits=file_limits(DEFAULT_MAX_ROWS_PER_FILE, DEFAULT_MAX_BYTES_PER_FILE),
            data_storage_version=version,
            targets=self._targets,
            files=self._dataset.files,
            plan=plan,
        )


def check_unique_keys(keys: pa.Table) -> None:
    """Refuse data in which two rows have the same key, as a merge does with the rows that it inserts.

    Args:
        keys: The columns of the key. Rows with a null in one of them have no key.

    Raises:
        InvalidInputError: Two rows have the same key.
        UnsupportedError: A type that cannot be a key.
    """
    again = KeyJoin(keys.columns).repeated()
    if len(again):
        row = keys.slice(int(again[0]), 1).to_pylist()[0]
        described = ", ".join(f"{name} = {value!r}" for name, value in row.items())
        raise InvalidInputError(
            f"more than one row of the source has {described}; nothing was written. Remove the duplicates"
        )


def _explained(plan: MergePlan, num_fragments: int) -> str:
    options = plan.options
    matched = options.matched.value + ("" if options.condition is None else f"If({options.condition})")
    inserts = "InsertAll" if options.inserts else "DoNothing"
    others = f"Delete({options.delete_condition or 'all'})" if options.deletes_others else "Keep"
    on, rest, source = (", ".join(schema.names) for schema in (plan.on, plan.rest, plan.fields))
    actions = f"when_matched={matched}, when_not_matched={inserts}, when_not_matched_by_source={others}"
    written = "columns beside the old ones" if plan.rewrites_columns else "whole rows in new fragments"
    lines = (
        f"MergeInsert: on=[{on}], {actions}",
        f"Write: {written}",
        f"Take: target=[{rest}]",
        f"HashJoin: on=[{on}]",
        f"Source: in memory, columns=[{source}]",
        f"Scan: target=[{on}], num_fragments={num_fragments}",
    )
    indents = (0, 1, 2, 3, 4, 4)
    return "\n".join("  " * indent + line for indent, line in zip(indents, lines, strict=True))
