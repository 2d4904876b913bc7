"""Methods of `LanceDataset` that change rows; each moves the object to the version it made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lance_core.change.delete import delete_rows, removing_staged, replace_rows
from lance_core.change.retries import commit_options, commit_work
from lance_core.change.stage import stage_data
from lance_core.change.update import UpdateWork
from lance_core.errors import InvalidInputError
from lance_core.methods.arguments import (
    DEFAULT_MAX_BYTES_PER_FILE,
    DEFAULT_MAX_ROWS_PER_FILE,
    file_limits,
    file_version,
)
from lance_core.methods.reading import make_plan
from lance_core.table.naming import naming
from lance_core.values.fragment_metadata import FragmentMetadata, from_metadata

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import timedelta

    import pyarrow as pa
    from pyarrow.compute import Expression

    from lance_core.format.table.fragment import Fragment
    from lance_core.merge_insert import MergeInsertBuilder
    from lance_core.methods.protocols import OpenDataset


def delete(
    dataset: OpenDataset,
    predicate: str | Expression,
    *,
    conflict_retries: int | None = None,
    retry_timeout: timedelta | None = None,
    transaction_properties: Mapping[str, str] | None = None,
    commit_message: str | None = None,
) -> dict[str, int]:
    """Delete rows; this object moves to the new version.

    Args:
        predicate: SQL text or pyarrow expression.
        conflict_retries: How often to work it out anew when another commit touched the same fragments.
        retry_timeout: Time after which it is not worked out anew.
        transaction_properties: Text for the history.
        commit_message: More of it.

    Returns:
        ``{"num_deleted_rows": n}``.

    Examples:
        >>> table.delete("height < 100")
        {'num_deleted_rows': 1}
        >>> table.count_rows()
        3
    """
    options = commit_options(conflict_retries, retry_timeout, properties=transaction_properties, message=commit_message)
    dataset.snapshot, num_rows = delete_rows(dataset.snapshot, predicate, options, dataset.files)
    return {"num_deleted_rows": num_rows}


def truncate_table(dataset: OpenDataset) -> None:
    """Delete all rows; this object moves to the new version."""
    delete(dataset, "true")


def update(  # noqa: PLR0917 positional as in pylance
    dataset: OpenDataset,
    updates: Mapping[str, str],
    where: str | Expression | None = None,
    conflict_retries: int | None = None,
    retry_timeout: timedelta | None = None,
    data_storage_version: str | None = None,
    *,
    transaction_properties: Mapping[str, str] | None = None,
    commit_message: str | None = None,
) -> dict[str, int]:
    """Give rows new values; this object moves to the new version.

    Updated rows move to new fragments at the end of the table.

    Args:
        updates: For each column to change, an SQL expression over the old values of the row. Its value is converted
            to the column's type.
        where: Rows to update: SQL text or pyarrow expression; all rows if None.
        conflict_retries: How often to work it out anew when another commit touched the same rows.
        retry_timeout: Time after which it is not worked out anew.
        data_storage_version: File version of new files; that of the dataset if None.
        transaction_properties: Text for the history.
        commit_message: More of it.

    Returns:
        ``{"num_rows_updated": n}``.

    Raises:
        InvalidInputError: Unknown columns, expressions or values that do not fit; nothing is left behind.
        CommitConflictError: Other commits got in the way each time.

    Examples:
        >>> table.update({"name": "upper(name)"}, where="id = 1")
        {'num_rows_updated': 1}
        >>> table.to_table(["name"], filter="id = 1")["name"].to_pylist()
        ['OSLO']
    """
    if not isinstance(updates, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInputError(f"'updates' must be a dict of names and SQL expressions, not {updates!r}")
    snapshot = dataset.snapshot
    options = commit_options(conflict_retries, retry_timeout, properties=transaction_properties, message=commit_message)
    with naming(snapshot.store):
        version = file_version(data_storage_version, snapshot)
    work = UpdateWork(
        updates=dict(updates),
        condition=where,
        limits=file_limits(DEFAULT_MAX_ROWS_PER_FILE, DEFAULT_MAX_BYTES_PER_FILE),
        data_storage_version=version,
        files=dataset.files,
    )
    dataset.snapshot = commit_work(snapshot, work, options, writes_files=True)
    return {"num_rows_updated": work.num_rows}


def merge_insert(dataset: OpenDataset, on: str | Iterable[str] | None = None) -> MergeInsertBuilder:
    """Update, insert and delete rows by their keys, in one commit.

    Example:
        ``dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(new_rows)``

    Args:
        on: Columns that make up the key; None for the primary key that the schema declares.

    Raises:
        InvalidInputError: No key, or unknown columns.

    Examples:
        >>> rows = pa.table({"id": [4, 5], "name": ["Cuzco", "Bonn"], "height": [3399, 60]})
        >>> merge = table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        >>> merge.execute(rows)
        {'num_inserted_rows': 1, 'num_updated_rows': 1, 'num_deleted_rows': 0}
    """
    from lance_core.merge_insert import MergeInsertBuilder  # noqa: PLC0415 much, for those who merge

    return MergeInsertBuilder(dataset, on)


def replace_where(
    dataset: OpenDataset,
    predicate: str | Expression,
    data: Any,
    *,
    schema: pa.Schema | None = None,
    conflict_retries: int | None = None,
    transaction_properties: Mapping[str, str] | None = None,
    commit_message: str | None = None,
    max_rows_per_file: int = DEFAULT_MAX_ROWS_PER_FILE,
    max_bytes_per_file: int = DEFAULT_MAX_BYTES_PER_FILE,
) -> dict[str, int]:
    """Delete the rows that match and add new ones, in one commit; this object moves to the new version.

    Not in pylance. If another commit adds rows or touches the same fragments meanwhile, the deletion is worked out
    anew on the newest version, so that of two writers which replace the same rows the later one wins; the new rows
    are written once.

    Args:
        predicate: Rows to replace: SQL text or pyarrow expression.
        data: New rows, as for `write_dataset`; or fragments from `write_fragments`.
        schema: Arrow schema to convert the data to.
        conflict_retries: How often to work it out anew.
        transaction_properties: Text for the history.
        commit_message: More of it.
        max_rows_per_file: Rows in a full data file.
        max_bytes_per_file: Bytes in a full data file, roughly.

    Returns:
        ``{"num_deleted_rows": n, "num_inserted_rows": m}``.

    Examples:
        >>> rows = pa.table({"id": [1], "name": ["Oslo"], "height": [20]})
        >>> table.replace_where("id = 1", rows)
        {'num_deleted_rows': 1, 'num_inserted_rows': 1}
        >>> table.to_table(filter="id = 1")["height"].to_pylist()
        [20]
    """
    options = commit_options(conflict_retries, properties=transaction_properties, message=commit_message)
    snapshot = dataset.snapshot
    limits = file_limits(max_rows_per_file, max_bytes_per_file)
    make_plan(dataset, [], predicate)  # before anything is written
    given = _given_fragments(data)
    with naming(snapshot.store):
        version = file_version(None, snapshot)
    staged: tuple[Fragment, ...] = ()
    if given is None:
        table = snapshot.manifest.schema
        staged, _ = stage_data(snapshot.store, data, schema, table=table, limits=limits, data_storage_version=version)
    added = staged if given is None else given
    with removing_staged(snapshot.store, staged):
        dataset.snapshot, num_rows = replace_rows(snapshot, predicate, added, options)
    return {"num_deleted_rows": num_rows, "num_inserted_rows": sum(fragment.physical_rows for fragment in added)}


def _given_fragments(data: Any) -> tuple[Fragment, ...] | None:
    """Return the fragments, if that is what the data is."""
    if not isinstance(data, (list, tuple)) or not all(isinstance(item, FragmentMetadata) for item in data):
        return None
    return tuple(from_metadata(item) for item in data)
