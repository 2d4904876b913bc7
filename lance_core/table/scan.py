"""Read a table: projection, filter, limit.

With a filter, its columns are read first; the others follow only where rows match: row by row if few do, else whole
ranges. Deleted rows never leave this module.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_core.errors import InvalidInputError
from lance_core.format.schema import Schema
from lance_core.table.fragment_reader import FragmentReader, Rows
from lance_core.table.predicate import make_predicate

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyarrow.compute import Expression

    from lance_core.format.fragment import Fragment
    from lance_core.table.open_files import OpenFiles
    from lance_core.table.predicate import Predicate

ROW_ID = "_rowid"
ROW_ADDRESS = "_rowaddr"
_SYSTEM_COLUMNS = (ROW_ID, ROW_ADDRESS)

DEFAULT_BATCH_BYTES = 32 << 20
_MAX_BATCH_ROWS = 1 << 18
_MIN_BATCH_ROWS = 1 << 10
_VARIABLE_BYTES = 64
_SPARSE_SHARE = 1 / 32
"""Up to this share of matching rows, reading single rows is cheaper than decoding the range around them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanPlan:
    """What to read, checked against a schema.

    Attributes:
        columns: Output columns: top-level names, dotted paths, ``_rowid`` or ``_rowaddr``.
        projection: Fields that the output needs.
        schema: Arrow schema of the output.
        batch_size: Rows read at a time.
        predicate: Rows to keep; None for all.
        filter_projection: Fields that the predicate needs.
        rest: Fields of the projection that the predicate does not bring along.
    """

    columns: tuple[str, ...]
    projection: Schema
    schema: pa.Schema
    batch_size: int
    predicate: Predicate | None = None
    filter_projection: Schema = field(default_factory=lambda: Schema(()))
    rest: Schema = field(default_factory=lambda: Schema(()))


def plan_scan(
    schema: Schema,
    *,
    columns: Sequence[str] | None,
    filter: str | Expression | None,  # noqa: A002 the name users know
    batch_size: int | None,
    with_row_id: bool,
    with_row_address: bool,
) -> ScanPlan:
    """Check what is asked for.

    Raises:
        InvalidInputError: Unknown or duplicate columns, a filter that does not fit.
        UnsupportedError: SQL that is not supported.
    """
    names = list(schema.names) if columns is None else list(columns)
    asked = {ROW_ID: with_row_id, ROW_ADDRESS: with_row_address}
    names += [name for name, wanted in asked.items() if wanted and name not in names]
    _check_names(names, schema)
    stored = [name for name in names if name not in _SYSTEM_COLUMNS]
    projection = schema.select(stored)
    plan = ScanPlan(
        columns=tuple(names),
        projection=projection,
        schema=_output_schema(names, schema),
        batch_size=batch_size or default_batch_size(projection.to_arrow()),
    )
    return plan if filter is None else _with_filter(plan, schema, filter, batch_size)


def plan_filter(schema: Schema, condition: str | Expression) -> ScanPlan:
    """A plan that only asks which rows match; errors as in `plan_scan`."""
    return plan_scan(schema, columns=[], filter=condition, batch_size=None, with_row_id=False, with_row_address=False)


def _with_filter(plan: ScanPlan, schema: Schema, condition: str | Expression, batch_size: int | None) -> ScanPlan:
    named = schema.to_arrow()
    for name in _SYSTEM_COLUMNS:
        named = named.append(pa.field(name, pa.uint64()))
    predicate = make_predicate(condition, named)
    needed = schema.select([name for name in predicate.columns if name not in _SYSTEM_COLUMNS])
    rest = tuple(one for one in plan.projection.fields if one not in needed.fields)
    widest = Schema((*needed.fields, *rest)).to_arrow()
    return replace(
        plan,
        predicate=predicate,
        filter_projection=needed,
        rest=Schema(rest, plan.projection.metadata),
        batch_size=batch_size or default_batch_size(widest),
    )


def _check_names(names: Sequence[str], schema: Schema) -> None:
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise InvalidInputError(f"columns {', '.join(sorted(twice))} are asked for twice")
    known = [*schema.names, *_SYSTEM_COLUMNS]
    for name in names:
        if name not in known and not any(name.startswith(f"{top}.") for top in known):
            near = difflib.get_close_matches(name, known, n=3) or known[:20]
            raise InvalidInputError(f"no column {name!r}; did you mean {', '.join(near)}?")


def _output_schema(names: Sequence[str], schema: Schema) -> pa.Schema:
    """Dotted paths come out as flat columns of that name, as in pylance."""
    fields: list[pa.Field] = []
    for name in names:
        if name in _SYSTEM_COLUMNS:
            fields.append(pa.field(name, pa.uint64()))
            continue
        arrow = schema.select([name]).fields[0].to_arrow()
        nullable = arrow.nullable
        if arrow.name != name:
            for _ in _steps(name, arrow.name):
                arrow = arrow.type.field(0)
                nullable = nullable or arrow.nullable
        fields.append(arrow.with_name(name).with_nullable(nullable))
    return pa.schema(fields, metadata=dict(schema.metadata) or None)


def _steps(path: str, top: str) -> list[str]:
    return path[len(top) + 1 :].split(".")


def default_batch_size(schema: pa.Schema) -> int:
    """Rows that make a batch of about `DEFAULT_BATCH_BYTES`."""
    width = sum(_width(one.type) for one in schema)
    return max(_MIN_BATCH_ROWS, min(_MAX_BATCH_ROWS, DEFAULT_BATCH_BYTES // max(width, 1)))


def _width(kind: pa.DataType) -> int:
    """Bytes of one value, roughly."""
    if pa.types.is_fixed_size_list(kind):
        return kind.list_size * _width(kind.value_type)
    if pa.types.is_struct(kind):
        return sum(_width(kind.field(i).type) for i in range(kind.num_fields))
    try:
        return max(kind.bit_width // 8, 1)
    except ValueError:
        return _VARIABLE_BYTES


# ---------------------------------------------------------------------------------------------------------- running it


def scan_fragments(
    files: OpenFiles,
    fragments: Iterable[Fragment],
    plan: ScanPlan,
    *,
    limit: int | None = None,
    offset: int = 0,
) -> Iterator[pa.RecordBatch]:
    """Read fragments one after another.

    Args:
        files: The dataset's open files.
        fragments: In the order wanted.
        plan: What to read.
        limit: Rows at most, None for all.
        offset: Matching rows to leave out first.
    """
    if plan.predicate is None:
        yield from _scan_window(files, fragments, plan, limit, offset)
        return
    for fragment in fragments:
        if limit == 0:
            return
        for batch in scan_fragment(FragmentReader(files, fragment), plan):
            skipped = min(offset, batch.num_rows)
            offset -= skipped
            part = batch.slice(skipped, limit)
            if part.num_rows:
                yield part
            limit = None if limit is None else limit - part.num_rows
            if limit == 0:
                return


def _scan_window(
    files: OpenFiles, fragments: Iterable[Fragment], plan: ScanPlan, limit: int | None, offset: int
) -> Iterator[pa.RecordBatch]:
    """Live rows [offset, offset + limit) of all fragments together; what lies outside is not read."""
    for fragment in fragments:
        num_rows = fragment.num_rows
        if offset >= num_rows:
            offset -= num_rows
            continue
        last = num_rows - 1 if limit is None else min(offset + limit, num_rows) - 1
        if last < offset:
            return
        reader = FragmentReader(files, fragment)
        start, end = 0, fragment.physical_rows
        if last - offset + 1 < num_rows:
            first_row, last_row = reader.offsets_of_live(np.array([offset, last])).tolist()
            start, end = first_row, last_row + 1
        yield from scan_fragment(reader, plan, start=start, end=end)
        limit = None if limit is None else limit - (last - offset + 1)
        offset = 0


def scan_fragment(
    reader: FragmentReader, plan: ScanPlan, *, start: int = 0, end: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Read the rows [start, end) of one fragment (offsets; deleted rows counted, but not returned)."""
    end = reader.fragment.physical_rows if end is None else end
    if plan.predicate is not None:
        yield from _scan_filtered(reader, plan, start, end)
        return
    for rows in reader.scan(plan.projection, start=start, end=end, batch_size=plan.batch_size):
        keep = reader.live_mask(rows.start, rows.start + rows.num_rows)
        offsets = _kept_offsets(rows, keep)
        columns = list(rows.columns) if keep is None else _filtered(rows.columns, plan.projection, keep)
        yield _output(reader, plan, plan.projection, columns, offsets)


def take_offsets(reader: FragmentReader, plan: ScanPlan, offsets: npt.NDArray[np.int64]) -> pa.RecordBatch:
    """Read single rows of one fragment by their offsets: ascending, without duplicates."""
    return _output(reader, plan, plan.projection, reader.take(plan.projection, offsets), offsets)


def count_matching(reader: FragmentReader, plan: ScanPlan) -> int:
    """How many rows of a fragment the predicate matches."""
    end = reader.fragment.physical_rows
    return sum(int(np.count_nonzero(mask)) for _, mask in _matches(reader, plan, 0, end))


def matching_offsets(reader: FragmentReader, plan: ScanPlan) -> npt.NDArray[np.int64]:
    """Offsets of the rows of a fragment that the predicate matches, ascending; deleted rows never match."""
    end = reader.fragment.physical_rows
    found = [np.flatnonzero(mask) + rows.start for rows, mask in _matches(reader, plan, 0, end)]
    return np.concatenate(found) if found else np.empty(0, np.int64)


def _matches(
    reader: FragmentReader, plan: ScanPlan, start: int, end: int
) -> Iterator[tuple[Rows, npt.NDArray[np.bool_]]]:
    assert plan.predicate is not None  # noqa: S101 for the type checker: callers have one
    for rows in reader.scan(plan.filter_projection, start=start, end=end, batch_size=plan.batch_size):
        batch = _predicate_batch(reader, plan, rows)
        mask = plan.predicate.mask(batch).to_numpy(zero_copy_only=False)
        live = reader.live_mask(rows.start, rows.start + rows.num_rows)
        yield rows, mask if live is None else mask & live


def _predicate_batch(reader: FragmentReader, plan: ScanPlan, rows: Rows) -> pa.RecordBatch:
    names, columns = [one.name for one in plan.filter_projection.fields], list(rows.columns)
    assert plan.predicate is not None  # noqa: S101 for the type checker: callers have one
    wanted = [name for name in _SYSTEM_COLUMNS if name in plan.predicate.columns]
    for name in wanted or ([] if columns else [ROW_ADDRESS]):  # a batch without columns would have no rows
        offsets = np.arange(rows.start, rows.start + rows.num_rows)
        names.append(name)
        columns.append(_system_column(reader, name, offsets))
    return pa.RecordBatch.from_arrays(columns, names=names)


@dataclass(slots=True)
class _Sparse:
    """Matching rows whose other columns are still to be fetched, row by row."""

    offsets: list[npt.NDArray[np.int64]] = field(default_factory=list)
    columns: list[list[pa.Array]] = field(default_factory=list)
    num_rows: int = 0

    def add(self, offsets: npt.NDArray[np.int64], columns: list[pa.Array]) -> None:
        self.offsets.append(offsets)
        self.columns.append(columns)
        self.num_rows += len(offsets)

    def fetch(self, reader: FragmentReader, plan: ScanPlan) -> Iterator[pa.RecordBatch]:
        if not self.num_rows:
            return
        offsets = np.concatenate(self.offsets)
        have = [pa.concat_arrays(list(parts)) for parts in zip(*self.columns, strict=True)]
        rest = reader.take(plan.rest, offsets)
        yield _output(reader, plan, _both(plan), [*have, *rest], offsets)
        self.offsets, self.columns, self.num_rows = [], [], 0


def _both(plan: ScanPlan) -> Schema:
    return Schema((*plan.filter_projection.fields, *plan.rest.fields))


def _scan_filtered(reader: FragmentReader, plan: ScanPlan, start: int, end: int) -> Iterator[pa.RecordBatch]:
    sparse = _Sparse()
    for rows, mask in _matches(reader, plan, start, end):
        offsets = np.flatnonzero(mask) + rows.start
        if not len(offsets):
            continue
        columns = _filtered(rows.columns, plan.filter_projection, mask)
        if not plan.rest.fields:
            yield _output(reader, plan, plan.filter_projection, columns, offsets)
        elif len(offsets) <= rows.num_rows * _SPARSE_SHARE:
            sparse.add(offsets, columns)
            if sparse.num_rows >= plan.batch_size:
                yield from sparse.fetch(reader, plan)
        else:
            yield from sparse.fetch(reader, plan)
            rest = _dense(reader, plan, rows, mask)
            yield _output(reader, plan, _both(plan), [*columns, *rest], offsets)
    yield from sparse.fetch(reader, plan)


def _dense(reader: FragmentReader, plan: ScanPlan, rows: Rows, mask: npt.NDArray[np.bool_]) -> list[pa.Array]:
    """The other columns of a range, decoded whole and filtered."""
    parts: list[list[pa.Array]] = []
    end = rows.start + rows.num_rows
    for more in reader.scan(plan.rest, start=rows.start, end=end, batch_size=rows.num_rows):
        first = more.start - rows.start
        parts.append(_filtered(more.columns, plan.rest, mask[first : first + more.num_rows]))
    return parts[0] if len(parts) == 1 else [pa.concat_arrays(list(column)) for column in zip(*parts, strict=True)]


def _filtered(columns: Sequence[pa.Array], schema: Schema, keep: npt.NDArray[np.bool_]) -> list[pa.Array]:
    if not columns:
        return []
    mask = pa.array(keep)
    return list(pa.RecordBatch.from_arrays(list(columns), schema=schema.to_arrow()).filter(mask).columns)


def _kept_offsets(rows: Rows, keep: npt.NDArray[np.bool_] | None) -> npt.NDArray[np.int64]:
    if keep is None:
        return np.arange(rows.start, rows.start + rows.num_rows)
    return np.flatnonzero(keep) + rows.start


def _system_column(reader: FragmentReader, name: str, offsets: npt.NDArray[np.int64]) -> pa.Array:
    return reader.row_ids(offsets) if name == ROW_ID else reader.row_addresses(offsets)


def _output(
    reader: FragmentReader,
    plan: ScanPlan,
    schema: Schema,
    columns: Sequence[pa.Array],
    offsets: npt.NDArray[np.int64],
) -> pa.RecordBatch:
    """Arrange columns as the plan's output wants them."""
    by_name = {one.name: column for one, column in zip(schema.fields, columns, strict=True)}
    arrays: list[pa.Array] = []
    for name in plan.columns:
        if name in _SYSTEM_COLUMNS:
            arrays.append(_system_column(reader, name, offsets))
        else:
            arrays.append(by_name[name] if name in by_name else _flat(name, by_name))
    return pa.RecordBatch.from_arrays(arrays, schema=plan.schema)


def _flat(path: str, by_name: dict[str, pa.Array]) -> pa.Array:
    """The values at a dotted path inside a struct."""
    from lance_core.table.sql_terms import pc  # noqa: PLC0415 rarely needed

    top = next(name for name in by_name if path.startswith(f"{name}."))
    values = by_name[top]
    for name in _steps(path, top):
        values = pc.struct_field(values, name)
    return values
