"""Methods of `LanceDataset` that read rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lance_core.arguments import check_unsupported, check_window
from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.format.blobs import blob_view
from lance_core.fragment import LanceFragment
from lance_core.table.fragment_reader import FragmentReader
from lance_core.table.naming import naming
from lance_core.table.scan import count_matching, scan_fragments
from lance_core.table.scan_plan import plan_scan
from lance_core.table.take import take_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyarrow.compute import Expression

    from lance_core.dataset import LanceDataset
    from lance_core.format.fragment import Fragment
    from lance_core.table.scan_plan import ScanPlan


def to_batches(
    dataset: LanceDataset,
    columns: Sequence[str] | None = None,
    filter: str | Expression | None = None,  # noqa: A002 the name in pylance
    limit: int | None = None,
    offset: int | None = None,
    *,
    batch_size: int | None = None,
    with_row_id: bool | None = None,
    with_row_address: bool | None = None,
    scan_in_order: bool | None = None,
    fragments: Sequence[LanceFragment] | None = None,
    blob_handling: str | None = None,
    **unsupported: Any,
) -> Iterator[pa.RecordBatch]:
    """Read the rows in order, batch by batch.

    Args:
        columns: Names, or dotted paths inside structs; all columns if None. Also ``_rowid`` and ``_rowaddr``.
        filter: SQL text or pyarrow expression; rows for which it is null do not match.
        limit: Rows at most.
        offset: Matching rows to leave out first.
        batch_size: Rows read at a time; by default as many as make about 32 MiB.
        with_row_id: Add ``_rowid``.
        with_row_address: Add ``_rowaddr``.
        scan_in_order: Accepted; the order is always that of the table.
        fragments: Read only these.
        blob_handling: How blob columns come out: ``blobs_descriptions`` (where they are; the default, also called
            ``all_descriptions``) or ``all_binary`` (their bytes).
        **unsupported: Arguments of pylance that lance_core does not have; they must be None.

    Raises:
        InvalidInputError: Unknown columns, a filter that does not fit, negative numbers.
        UnsupportedError: SQL or arguments that are not supported.
        CorruptDataError: A damaged file.
    """
    del scan_in_order
    check_unsupported("to_batches", unsupported)
    check_window(limit, offset, batch_size)
    if isinstance(columns, str):
        raise InvalidInputError("columns is a list of names")
    if isinstance(columns, Mapping):
        raise UnsupportedError("columns as SQL expressions (a dict); give a list of names")
    ids = (bool(with_row_id), bool(with_row_address))
    plan = make_plan(dataset, columns, filter, batch_size, *ids, blob_handling=blob_handling)
    chosen = _chosen(dataset, fragments)
    return scan_fragments(dataset.files, chosen, plan, limit=limit, offset=offset or 0)


def to_table(
    dataset: LanceDataset,
    columns: Sequence[str] | None = None,
    filter: str | Expression | None = None,  # noqa: A002 the name in pylance
    limit: int | None = None,
    offset: int | None = None,
    **options: Any,
) -> pa.Table:
    """Read rows into memory; arguments as in `to_batches`."""
    batches = dataset.to_batches(columns, filter, limit, offset, **options)
    wants = [bool(options.get(name)) for name in ("with_row_id", "with_row_address")]
    plan = make_plan(dataset, columns, None, None, *wants, blob_handling=options.get("blob_handling"))
    return pa.Table.from_batches(batches, schema=plan.schema)


def to_pandas(dataset: LanceDataset, **options: Any) -> Any:
    """Read rows into a pandas DataFrame; arguments as in `to_batches`."""
    return dataset.to_table(**options).to_pandas()


def head(dataset: LanceDataset, num_rows: int, **options: Any) -> pa.Table:
    """The first rows; arguments as in `to_batches`."""
    return dataset.to_table(limit=num_rows, **options)


def take(dataset: LanceDataset, indices: Sequence[int] | pa.Array, columns: Sequence[str] | None = None) -> pa.Table:
    """Rows by their place in the table.

    Args:
        indices: Places, from 0, deleted rows not counted; any order, repeats allowed.
        columns: As in `to_batches`.

    Raises:
        InvalidInputError: There is no such row.
    """
    places = np.asarray(indices, np.int64) if len(indices) else np.empty(0, np.int64)
    plan = make_plan(dataset, columns)
    return take_rows(dataset.snapshot, dataset.files, places, plan)


def count_rows(dataset: LanceDataset, filter: str | Expression | None = None) -> int:  # noqa: A002 the name in pylance
    """How many rows there are, or match a filter. Without a filter no data is read."""
    if filter is None:
        return dataset.snapshot.manifest.num_rows
    plan = make_plan(dataset, [], filter)
    return sum(count_matching(FragmentReader(dataset.files, one), plan) for one in dataset.snapshot.manifest.fragments)


def make_plan(
    dataset: LanceDataset,
    columns: Sequence[str] | None,
    filter: str | Expression | None = None,  # noqa: A002 the name in pylance
    batch_size: int | None = None,
    *with_ids: bool,
    blob_handling: str | None = None,
) -> ScanPlan:
    """What a scan of this dataset reads; errors tell its address."""
    with_row_id, with_row_address = with_ids or (False, False)
    with naming(dataset.snapshot.store):
        return plan_scan(
            dataset.snapshot.manifest.schema,
            columns=columns,
            filter=filter,
            batch_size=batch_size,
            with_row_id=with_row_id,
            with_row_address=with_row_address,
            blob_view=blob_view(blob_handling),
        )


def get_fragments(dataset: LanceDataset) -> list[LanceFragment]:
    """All fragments, in order."""
    return [_fragment(dataset, one) for one in dataset.snapshot.manifest.fragments]


def get_fragment(dataset: LanceDataset, fragment_id: int) -> LanceFragment | None:
    """The fragment with this id, None if there is none."""
    found = dataset.snapshot.manifest.fragments.find(fragment_id)
    return None if found is None else _fragment(dataset, found)


def _fragment(dataset: LanceDataset, fragment: Fragment) -> LanceFragment:
    return LanceFragment(dataset, fragment.id, fragment=fragment, snapshot=dataset.snapshot)


def _chosen(dataset: LanceDataset, fragments: Sequence[LanceFragment] | None) -> Sequence[Fragment]:
    known = dataset.snapshot.manifest.fragments
    if fragments is None:
        return known  # type: ignore[return-value] a sequence that decodes when asked
    found = [known.find(one.fragment_id) for one in fragments]
    if any(one is None for one in found):
        raise InvalidInputError(f"version {dataset.version} does not have all of these fragments", path=dataset.uri)
    return [one for one in found if one is not None]
