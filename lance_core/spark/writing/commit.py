"""Make what the tasks of a write have staged visible, in one new version."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Any

from lance_core.change.delete import replace_rows
from lance_core.change.retries import CommitOptions, new_transaction
from lance_core.change.stage import remove_staged
from lance_core.errors import CommitOutcomeUnknownError, DatasetAlreadyExistsError
from lance_core.format.table.operations import Append, Overwrite
from lance_core.table.commit import commit
from lance_core.table.idempotency import find_commit
from lance_core.table.snapshot import open_snapshot, read_transaction

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from lance_core.format.table.fragment import Fragment
    from lance_core.format.table.operations import Operation
    from lance_core.spark.writing.write_plan import WritePlan
    from lance_core.store.base import Store
    from lance_core.table.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """Result of publishing a write.

    Attributes:
        version: The version that has its key.
        is_ours: False if another run with the same key was faster; then what was staged is gone.
        num_deleted_rows: Rows that were replaced; None if that is not counted.
    """

    version: int
    is_ours: bool
    num_deleted_rows: int | None = None


def publish(plan: WritePlan, fragments: Sequence[Fragment], partitions: pa.Table | None) -> Published:
    """Make staged fragments visible in one new version.

    If a version with this key turns up, ours or that of another run, the write has succeeded. Staged files are
    deleted when it is certain that no version knows them.

    Args:
        plan: The write.
        fragments: What the tasks staged, in order.
        partitions: Which partitions the rows are in, if the plan has some.

    Raises:
        CommitConflictError: Another commit changed what this one relies on.
        CommitOutcomeUnknownError: The store left open what happened.
    """
    store = plan.open()
    version, num_deleted = find_commit(store, plan.key, after=plan.read_version), None
    if version is None:
        try:
            done, num_deleted = _commit(store, plan, fragments, partitions)
            version = done.version
        except Exception as error:
            version = find_commit(store, plan.key, after=plan.read_version)
            if version is None:
                if not isinstance(error, CommitOutcomeUnknownError):
                    remove_staged(store, fragments)
                raise
    is_ours = _remove_unused(store, version, fragments)
    return Published(version=version, is_ours=is_ours, num_deleted_rows=num_deleted if is_ours else None)


def _remove_unused(store: Store, version: int, staged: Sequence[Fragment]) -> bool:
    """Remove what was staged, if the version with our key was made by another run; whether it was made by us."""
    transaction = read_transaction(store, version)
    if transaction is None or _paths(new_fragments(transaction.operation)) == _paths(staged):
        return True
    remove_staged(store, staged)
    return False


def _paths(fragments: Sequence[Fragment]) -> set[str]:
    return {file.path for fragment in fragments for file in fragment.files}


def _commit(
    store: Store, plan: WritePlan, fragments: Sequence[Fragment], partitions: pa.Table | None
) -> tuple[Snapshot, int | None]:
    if not plan.read_version:
        try:
            return _create(store, plan, fragments), None
        except DatasetAlreadyExistsError:
            if plan.creates_only:
                raise
            plan = _joining(store, plan)  # somebody else was faster
    if plan.new_columns is not None:
        from lance_core.spark.writing.new_columns import add_new_columns  # noqa: PLC0415 rarely needed

        add_new_columns(store, plan.new_columns, plan.fields)
    if plan.kind == "replace":
        snapshot = open_snapshot(store, plan.read_version)
        condition: Any = plan.condition if partitions is None else _in_partitions(partitions)
        options = CommitOptions(properties=plan.properties)
        if condition is not None:
            return replace_rows(snapshot, condition, fragments, options)
    files = tuple(fragments)
    if plan.kind == "overwrite":
        return _overwrite(store, plan, files), None
    return _commit_operation(store, plan, Append(fragments=files)), 0


def _overwrite(store: Store, plan: WritePlan, files: tuple[Fragment, ...]) -> Snapshot:
    operation = Overwrite(fragments=files, schema=plan.fields, config_upsert_values=plan.table_config)
    return _commit_operation(store, plan, operation, data_storage_version=plan.data_storage_version)


def _create(store: Store, plan: WritePlan, fragments: Sequence[Fragment]) -> Snapshot:
    operation = Overwrite(fragments=tuple(fragments), schema=plan.fields, config_upsert_values=plan.table_config)
    return _commit_operation(
        store,
        plan,
        operation,
        data_storage_version=plan.data_storage_version,
        enable_stable_row_ids=plan.enable_stable_row_ids,
    )


def _commit_operation(store: Store, plan: WritePlan, operation: Operation, **options: Any) -> Snapshot:
    transaction = new_transaction(plan.read_version, operation, properties=plan.properties, message=None)
    return commit(store, transaction, has_new_uuid=True, **options)


def _joining(store: Store, plan: WritePlan) -> WritePlan:
    """Return the plan for a table that was created since; what was staged must fit it as it is."""
    snapshot = open_snapshot(store)
    same = (plan.fields, plan.data_storage_version) == (
        snapshot.manifest.schema,
        snapshot.manifest.data_storage_version,
    )
    if plan.kind != "overwrite" and not same:
        raise DatasetAlreadyExistsError("Another writer created the dataset with a different schema", path=store.uri)
    return replace(plan, read_version=snapshot.version)


def _in_partitions(partitions: pa.Table) -> Any:
    """Return rows that have the values of one of the rows of a table; None if it has none."""
    import pyarrow.compute as pc  # noqa: PLC0415 rarely needed

    names = partitions.column_names
    if len(names) == 1:
        values = partitions.column(0).drop_null().combine_chunks()
        asked = [pc.field(names[0]).isin(values)] if len(values) else []
        asked += [pc.field(names[0]).is_null()] if partitions.column(0).null_count else []
    else:
        rows = zip(*(column.combine_chunks() for column in partitions.columns), strict=True)
        asked = [
            reduce(and_, (_is_value(pc, name, item) for name, item in zip(names, row, strict=True))) for row in rows
        ]
    return reduce(or_, asked) if asked else None


def _is_value(pc: Any, name: str, value: pa.Scalar) -> Any:
    return pc.field(name) == value if value.is_valid else pc.field(name).is_null()


def new_fragments(operation: Operation) -> Sequence[Fragment]:
    """Return the fragments that a write added."""
    added = getattr(operation, "new_fragments", None)
    return getattr(operation, "fragments", ()) if added is None else added
