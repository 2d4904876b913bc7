"""Arrange the rows that a scan read: some rows of its columns, system columns, the order of the output."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_core.encoding.arrow_values import batch_of, mask_array, settled
from lance_core.encoding.kernels import numbers_array, take_inside
from lance_core.errors import UnsupportedError
from lance_core.scan.fragment_run import FragmentRun
from lance_core.scan.lineage import ROW_CREATED_AT
from lance_core.scan.plan import ROW_ADDRESS, ROW_ID, ROW_OFFSET, SYSTEM_COLUMNS, ScanPlan, path_steps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_core.format.schema import Schema
    from lance_core.scan.fragment_run import RowSource

MASKED_SHARE = 7 / 8
"""From this share of rows on, Arrow keeps them faster by a mask than by their places: it copies whole runs. Where half
of the rows are kept, places take a third to two thirds of the time."""


def picked_rows(
    columns: Sequence[pa.Array], schema: Schema, num_rows: int, indices: npt.NDArray[np.int64]
) -> list[pa.Array]:
    """Return some rows of columns, which have so many: shape (n,), ascending."""
    if not columns or len(indices) == num_rows:
        return list(columns)
    batch = pa.RecordBatch.from_arrays(list(map(settled, columns)), schema=schema.to_arrow())
    if len(indices) > num_rows * MASKED_SHARE:
        keep = np.zeros(num_rows, np.bool_)
        keep[indices] = True
        return list(batch.filter(mask_array(keep)).columns)
    return list(take_inside(batch, indices).columns)


def system_column(reader: RowSource, plan: ScanPlan, name: str, offsets: npt.NDArray[np.int64]) -> pa.Array:
    """Return a system column of the rows at some offsets."""
    if isinstance(reader, FragmentRun):
        parts = [
            system_column(fragment, plan, name, fragment_offsets)
            for fragment, fragment_offsets in reader.split(offsets)
        ]
        return pa.concat_arrays([numbers_array(np.empty(0, np.uint64)), *parts])
    if name == ROW_ID:
        return reader.row_ids(offsets)
    if name == ROW_ADDRESS:
        return reader.row_addresses(offsets)
    if name == ROW_OFFSET:
        if plan.row_starts is None:
            raise UnsupportedError(f"{ROW_OFFSET} can be read and asked for by scans and takes only")
        return numbers_array(plan.row_starts.row_offsets(reader.fragment.id, reader.deleted, offsets))
    return numbers_array((reader.created_versions if name == ROW_CREATED_AT else reader.updated_versions)[offsets])


def output_batch(
    reader: RowSource,
    plan: ScanPlan,
    schema: Schema,
    columns: Sequence[pa.Array],
    offsets: npt.NDArray[np.int64],
) -> pa.RecordBatch:
    """Arrange columns as the plan's output wants them; without any, ``offsets`` tells how many rows there are."""
    if plan.columns == schema.names:
        return batch_of(columns, plan.schema, len(offsets))
    by_name = {top_field.name: column for top_field, column in zip(schema.fields, columns, strict=True)}
    arrays: list[pa.Array] = []
    for name in plan.columns:
        if name in SYSTEM_COLUMNS:
            arrays.append(system_column(reader, plan, name, offsets))
        else:
            arrays.append(by_name[name] if name in by_name else _flat(name, by_name))
    return batch_of(arrays, plan.schema, len(offsets))


def _flat(path: str, by_name: dict[str, pa.Array]) -> pa.Array:
    """Return the values at a dotted path inside a struct."""
    from lance_core.sql.terms import pc  # noqa: PLC0415 rarely needed

    top = next(name for name in by_name if path.startswith(f"{name}."))
    values = by_name[top]
    for name in path_steps(path, top):
        values = pc.struct_field(values, name)
    return values
