"""Zone maps of a version, as scans use them: which rows cannot match a filter."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_core.encoding.distinct import distinct
from lance_core.errors import CorruptDataError, UnsupportedError
from lance_core.file.read.reader import DataFileReader
from lance_core.format.index_metadata import index_fields
from lance_core.format.paths import INDICES_FOLDER, base_prefix
from lance_core.format.zone_map import COLUMNS, FILE_NAME, INDEX_VERSION, TYPE_URL, has_zone_map, zone_schema
from lance_core.frozen import frozen
from lance_core.limits import check_limit
from lance_core.scan.candidates import kept_ranges

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lance_core.format.index_metadata import IndexMetadata
    from lance_core.format.manifest import Manifest
    from lance_core.format.schema import Field, Schema
    from lance_core.scan.fragment_reader import FragmentReader
    from lance_core.scan.open_files import OpenFiles
    from lance_core.scan.plan import ScanPlan
    from lance_core.sql.pruning import ColumnZones, Condition
    from lance_core.store.base import Store

Int64s = npt.NDArray[np.int64]
_BATCH_ROWS = 1 << 16
_MAX_ROWS = 1 << 32
_MAX_FRAGMENT_ID = (1 << 31) - 1
_ADDRESS_SHIFT = 32


@frozen(kw_only=True)
class ZoneTable:
    """Content of one zone map, sorted by fragment and place.

    Attributes:
        fragment_ids: Shape (zones,).
        starts: Shape (zones,), offset of each zone's first row.
        ends: Shape (zones,), offset of the row behind its last one.
        null_count: Shape (zones,).
        nan_count: Shape (zones,).
        minimum: One value for each zone.
        maximum: Likewise.
    """

    fragment_ids: Int64s
    starts: Int64s
    ends: Int64s
    null_count: Int64s
    nan_count: Int64s
    minimum: pa.Array
    maximum: pa.Array


@frozen(kw_only=True)
class ColumnZoneMap:
    """A zone map of one column of a version.

    Attributes:
        path: Name of the column, or dotted path inside structs.
        is_nested: It lies inside a struct, which may be null where the column is not.
        fragment_ids: Fragments for which it holds.
        table: What it says.
    """

    path: str
    is_nested: bool
    fragment_ids: frozenset[int]
    table: ZoneTable


@frozen(kw_only=True)
class ZoneMaps:
    """What the zone maps of a version say of a filter; judged once for all fragments.

    Attributes:
        bounds: Shape (n + 1,), row addresses between which there are the same zones, ascending.
        keep: Shape (n,), whether rows between two bounds may match; true where nothing is known.
    """

    bounds: Int64s
    keep: npt.NDArray[np.bool_]

    def narrowed(self, reader: FragmentReader, ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """The parts of ranges of rows of a fragment that may hold rows which match; deleted rows may be missing."""
        first, num_rows = reader.fragment.id << _ADDRESS_SHIFT, reader.fragment.physical_rows
        low, high = np.searchsorted(self.bounds, [first, first + _MAX_ROWS]).tolist()
        if low == high:
            return list(ranges)
        inside = self.bounds[low:high] - first
        if int(inside[-1]) > num_rows:
            raise CorruptDataError(f"a zone map has rows behind the last one of fragment {reader.fragment.id}")
        # Of rows before the first zone and behind the last one nothing is known.
        bounds = np.concatenate([[0], inside, [num_rows]])
        keep = np.concatenate([[True], self.keep[low : high - 1], [True]])
        return [cut for start, end in ranges for cut in kept_ranges(bounds, keep, start, end)]


def _judged(condition: Condition, columns: Sequence[ColumnZoneMap]) -> ZoneMaps:
    from lance_core.sql.pruning import may_match  # noqa: PLC0415 brings Arrow's kernels along

    places = [_addresses(column) for column in columns]
    bounds = distinct(np.concatenate([one for starts, ends, _ in places for one in (starts, ends)]))
    known = {
        column.path: _between(column, starts, ends, chosen, bounds)
        for column, (starts, ends, chosen) in zip(columns, places, strict=True)
    }
    num_zones = max(len(bounds) - 1, 0)
    return ZoneMaps(bounds=bounds, keep=may_match(condition, known, num_zones))


def _addresses(column: ColumnZoneMap) -> tuple[Int64s, Int64s, Int64s]:
    """Row addresses where zones of covered fragments begin and end, and which zones these are."""
    table = column.table
    covered = np.fromiter(column.fragment_ids, np.int64, len(column.fragment_ids))
    chosen = np.flatnonzero(np.isin(table.fragment_ids, covered) & (table.ends > table.starts))
    first = table.fragment_ids[chosen] << _ADDRESS_SHIFT
    return first + table.starts[chosen], first + table.ends[chosen], chosen


def with_zone_maps(plan: ScanPlan, manifest: Manifest, files: OpenFiles) -> ScanPlan:
    """A plan that skips rows which cannot match, as the version's zone maps tell; deleted rows are skipped too.

    Raises:
        CorruptDataError: The file of a zone map is damaged.
        NotFoundError: It is missing.
    """
    if plan.predicate is None or plan.predicate.asks is None or manifest.index_section is None:
        return plan
    leaves = {path: leaf_at(manifest.schema, path) for path in plan.predicate.columns}
    found: list[ColumnZoneMap] = []
    for index in filter(is_zone_map, manifest.indices):
        for path, leaf in leaves.items():
            fragment_ids = index.fragment_ids
            if leaf is None or index.fields != (leaf.id,) or not fragment_ids:
                continue
            is_nested, table = path not in manifest.schema.names, files.zone_table(index, leaf)
            if not len(table.starts):
                continue
            found.append(ColumnZoneMap(path=path, is_nested=is_nested, fragment_ids=fragment_ids, table=table))
    return replace(plan, zone_maps=_judged(plan.predicate.asks, found)) if found else plan


def is_zone_map(index: IndexMetadata) -> bool:
    """Whether an index is a zone map that lance_core can read."""
    fields = index_fields(index)
    return fields.details is not None and fields.details[0] == TYPE_URL and fields.index_version == INDEX_VERSION


def leaf_at(schema: Schema, path: str) -> Field | None:
    """The field at a path of structs, if a zone map can say something of it."""
    top = path if path in schema.names else path.split(".", 1)[0]
    if top not in schema.names:
        return None
    field = schema.select([path]).fields[0]
    while field.logical_type == "struct" and len(field.children) == 1:
        field = field.children[0]
    return None if field.children or not has_zone_map(field.to_arrow().type) else field


def path_of(schema: Schema, field_id: int) -> str:
    """Dotted path of a field; a text that is none if the schema does not have it."""
    found = next((path for path, one in _paths(schema.fields) if one.id == field_id), None)
    return f"(field {field_id})" if found is None else found


def _paths(fields: Sequence[Field], above: str = "") -> Iterator[tuple[str, Field]]:
    for one in fields:
        yield above + one.name, one
        yield from _paths(one.children, f"{above}{one.name}.")


def zone_map_path(index: IndexMetadata) -> str:
    """Where the file of a zone map lies."""
    return f"{base_prefix(index.base_id)}{INDICES_FOLDER}/{index.uuid_text}/{FILE_NAME}"


def load_zone_table(store: Store, index: IndexMetadata, leaf: Field) -> ZoneTable:
    """Read a zone map.

    Raises:
        CorruptDataError: It is damaged, or of another type than its field.
        NotFoundError: It is missing.
    """
    path = zone_map_path(index)
    reader = DataFileReader(store.reader(path), path=f"{store.uri}/{path}")
    schema, expected = reader.schema, zone_schema(leaf.to_arrow().type)
    if schema.names != COLUMNS or [one.type for one in schema.to_arrow()] != [one.type for one in expected]:
        raise CorruptDataError(f"the zone map of field {leaf.name!r} has columns {schema.names}", path=path)
    check_limit("max_zones", reader.num_rows, "zones of a zone map", path=path)
    batches = list(reader.scan(schema, reader.column_numbers, start=0, end=reader.num_rows, batch_size=_BATCH_ROWS))
    table = pa.Table.from_batches(batches, schema=schema.to_arrow()).combine_chunks()
    columns = [_whole(column) for column in table.columns]
    return _checked(columns, path)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _checked(columns: Sequence[pa.Array], path: str) -> ZoneTable:
    minimum, maximum = columns[:2]
    counts = [column.to_numpy(zero_copy_only=False) for column in columns[2:]]
    if any(column.null_count for column in columns[2:]) or any(one.max(initial=0) > _MAX_ROWS for one in counts):
        raise CorruptDataError("a zone map has counts that cannot be", path=path)
    nulls, nans, fragment_ids, starts, lengths = (one.astype(np.int64) for one in counts)
    order = np.lexsort((starts, fragment_ids))
    fragment_ids, starts, ends = fragment_ids[order], starts[order], (starts + lengths)[order]
    if fragment_ids.max(initial=0) > _MAX_FRAGMENT_ID:
        raise UnsupportedError(f"a zone map of fragments with ids above {_MAX_FRAGMENT_ID}", path=path)
    overlaps = (fragment_ids[1:] == fragment_ids[:-1]) & (starts[1:] < ends[:-1])
    if overlaps.any() or (nulls > lengths).any() or (nans > lengths).any():
        raise CorruptDataError("the zones of a zone map overlap, or have more nulls than rows", path=path)
    places = pa.array(order)
    return ZoneTable(
        fragment_ids=fragment_ids,
        starts=starts,
        ends=ends,
        null_count=nulls[order],
        nan_count=nans[order],
        minimum=minimum.take(places),
        maximum=maximum.take(places),
    )


def _between(column: ColumnZoneMap, starts: Int64s, ends: Int64s, chosen: Int64s, bounds: Int64s) -> ColumnZones:
    """What is known between each two bounds; nothing where there is no zone."""
    from lance_core.sql.pruning import ColumnZones  # noqa: PLC0415 as above

    table = column.table
    if not len(chosen):
        chosen, starts, ends = np.zeros(1, np.int64), np.full(1, -1), np.full(1, -1)
    place = np.maximum(np.searchsorted(starts, bounds[:-1], side="right") - 1, 0)
    is_known = (starts[place] <= bounds[:-1]) & (bounds[:-1] < ends[place])
    zone = chosen[place]
    places = pa.array(zone, mask=~is_known)
    has_counts = is_known & (not column.is_nested)
    # What is said of a zone says less of a part of it: the counts are those of the whole zone.
    return ColumnZones(
        num_rows=np.where(is_known, (table.ends - table.starts)[zone], _MAX_ROWS),
        null_count=np.where(has_counts, table.null_count[zone], -1),
        nan_count=np.where(is_known, table.nan_count[zone], -1),
        minimum=table.minimum.take(places),
        maximum=table.maximum.take(places),
    )
