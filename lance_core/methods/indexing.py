"""Methods of `LanceDataset` about indices; those that change something move the object to the version they made."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from lance_core.change.retries import commit_options, commit_work
from lance_core.errors import InvalidInputError
from lance_core.indices import describe
from lance_core.stats import LanceStats
from lance_core.unsupported import refuse_given

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lance_core.indices import IndexDescription
    from lance_core.methods.protocols import OpenDataset

_SYSTEM_PREFIX = "__lance"


def create_scalar_index(
    dataset: OpenDataset,
    column: str,
    index_type: str,
    name: str | None = None,
    *,
    replace: bool = True,
    train: bool = True,
    fragment_ids: Sequence[int] | None = None,
    index_uuid: str | None = None,
    rows_per_zone: int | None = None,
    number_of_items: int | None = None,
    max_memory_bytes: int | None = None,
    conflict_retries: int | None = None,
    transaction_properties: Mapping[str, str] | None = None,
    progress_callback: Callable[[Any], None] | None = None,
    format_version: int | str | None = None,
    document_granularity: str | None = "row",
) -> None:
    """Build an index; filters of scans, counts, deletes and updates use it.

    Args:
        column: Name, or dotted path inside structs.
        index_type: One of the kinds below, in upper or lower case.

            - ``"BTREE"``: all values, sorted; finds rows by value, text also by prefix.
            - ``"BITMAP"``: the rows of each distinct value, for columns with few of them.
            - ``"LABEL_LIST"``: the rows of each item of lists, for ``array_has``, ``array_has_any`` and
              ``array_has_all``.
            - ``"NGRAM"``: the rows of each three letters or digits in a row, for ``contains`` and ``LIKE``.
            - ``"ZONEMAP"``: smallest and largest value, nulls and NaN of each run of rows; skips runs.
            - ``"BLOOMFILTER"``: a Bloom filter of each run of rows; skips runs for ``=`` and ``IN``.

            Indices of other kinds that pylance made are kept right.
        name: Name of the index; ``{column}_idx`` if None.
        replace: Take the place of an index of that name.
        train: If false, no fragment is covered; `DatasetOptimizer.optimize_indices` does the work later.
        fragment_ids: Fragments to cover; all if None.
        index_uuid: Name of the index folder; random if None.
        rows_per_zone: Rows in each run of a ``"ZONEMAP"``; 8192 if None.
        number_of_items: Rows in each run of a ``"BLOOMFILTER"``; 8192 if None.
        max_memory_bytes: Memory for sorting a ``"BTREE"``, ``"BITMAP"``, ``"LABEL_LIST"`` or ``"NGRAM"``; 512 MiB if
            None. More rows are sorted in temporary files.
        conflict_retries: How often to make it anew when another commit rewrote the fragments.
        transaction_properties: Text for the history.
        progress_callback: Not supported, like ``format_version`` and ``document_granularity``.
        format_version: Not supported.
        document_granularity: Not supported.

    Raises:
        UnsupportedError: Another kind of index, or a type that this kind does not take.
        AlreadyExistsError: There is an index of that name, and it shall not or cannot be replaced.

    Examples:
        >>> table.create_scalar_index("height", "ZONEMAP")
        >>> table.count_rows("height > 5000")  # reads the zone map only
        0
    """
    from lance_core.change.indices import BuildIndex, index_options  # noqa: PLC0415 rarely needed

    refuse_given(
        "create_scalar_index",
        progress_callback=progress_callback,
        format_version=format_version,
        document_granularity=document_granularity,
    )
    if name is not None and (not name or name.startswith(_SYSTEM_PREFIX)):
        raise InvalidInputError(f"{name!r} is not allowed as the name of an index")
    work = BuildIndex(
        kind=index_type,
        column=column,
        name=name or f"{column}_idx",
        replace=replace,
        options=index_options(
            rows_per_zone=rows_per_zone, number_of_items=number_of_items, max_memory_bytes=max_memory_bytes
        ),
        fragment_ids=fragment_ids if train else (),
        uuid=None if index_uuid is None else _uuid(index_uuid),
    )
    options = commit_options(conflict_retries, properties=transaction_properties)
    dataset.snapshot = commit_work(dataset.snapshot, work, options)


def drop_index(dataset: OpenDataset, name: str) -> None:
    """Remove an index of any kind. Its files stay until the versions that have it are cleaned up.

    Raises:
        NotFoundError: There is no such index.

    Examples:
        >>> table.create_scalar_index("height", "ZONEMAP")
        >>> table.drop_index("height_idx")
        >>> table.list_indices()
        []
    """
    from lance_core.change.indices import DropIndex  # noqa: PLC0415 rarely needed

    dataset.snapshot = commit_work(dataset.snapshot, DropIndex(name=name), commit_options())


def describe_indices(dataset: OpenDataset) -> list[IndexDescription]:
    """The indices of this version, by name, as far as the manifest tells; their files are not opened."""
    return describe(dataset.snapshot.manifest)


def list_indices(dataset: OpenDataset) -> list[dict[str, Any]]:
    """The segments of all indices, by name.

    Returns:
        Dicts with ``name``, ``type`` (vector indices are just ``Vector``), ``uuid``, ``fields`` (names), ``version``,
        ``fragment_ids`` and ``base_id``.

    Examples:
        >>> table.create_scalar_index("height", "ZONEMAP")
        >>> [index["name"] for index in table.list_indices()]
        ['height_idx']
    """
    return [
        {
            "name": index.name,
            "type": index.index_type,
            "uuid": segment.uuid,
            "fields": index.field_names,
            "version": segment.dataset_version_at_last_update,
            "fragment_ids": segment.fragment_ids,
            "base_id": segment.base_id,
        }
        for index in describe(dataset.snapshot.manifest)
        for segment in index.segments
    ]


def index_statistics(dataset: OpenDataset, index_name: str) -> dict[str, Any]:
    """Numbers about one index; the same as ``stats.index_stats``."""
    return LanceStats(dataset.snapshot).index_stats(index_name)


def _uuid(text: str) -> bytes:
    try:
        return uuid.UUID(text).bytes
    except (ValueError, AttributeError) as error:
        raise InvalidInputError(f"'index_uuid' must be a UUID, not {text!r}") from error
