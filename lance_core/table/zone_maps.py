"""Zone maps of a version, as scans use them: which rows cannot match a filter."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_core.errors import CorruptDataError
from lance_core.file.reader import DataFileReader
from lance_core.format.index_metadata import index_fields
from lance_core.format.paths import INDICES_FOLDER, base_prefix
from lance_core.format.zone_map import COLUMNS, FILE_NAME, INDEX_VERSION, TYPE_URL, has_zone_map, zone_schema
from lance_core.table.candidates import kept_ranges

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lance_core.format.index_metadata import IndexMetadata
    from lance_core.format.manifest import Manifest
    from lance_core.format.schema import Field, Schema
    from lance_core.store.base import Store
    from lance_core.table.fragment_reader import FragmentReader
    from lance_core.table.open_files import OpenFiles
    from lance_core.table.pruning import ColumnZones
    from lance_core.table.scan_plan import ScanPlan

Int64s = npt.NDArray[np.int64]
_BATCH_ROWS = 1 << 16
_MAX_ROWS = 1 << 32


@dataclass(frozen=True, slots=True, kw_only=True)
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

    def of(self, fragment_id: int) -> slice:
        """The zones of a fragment."""
        first, last = np.searchsorted(self.fragment_ids, [fragment_id, fragment_id + 1]).tolist()
        return slice(first, last)


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneMaps:
    """The zone maps of the columns that a filter names."""

    columns: tuple[ColumnZoneMap, ...]

    def narrowed(
        self, reader: FragmentReader, plan: ScanPlan, ranges: Sequence[tuple[int, int]]
    ) -> list[tuple[int, int]]:
        """The parts of ranges of rows of a fragment that may hold rows which match; deleted rows may be missing."""
        fragment_id, num_rows = reader.fragment.id, reader.fragment.physical_rows
        known = [one for one in self.columns if fragment_id in one.fragment_ids]
        if not known or plan.predicate is None or plan.predicate.asks is None:
            return list(ranges)
        from lance_core.table.pruning import may_match  # noqa: PLC0415 brings Arrow's kernels along

        zones = [(one, one.table.of(fragment_id)) for one in known]
        edges = [np.array([0, num_rows], np.int64)]
        for one, part in zones:
            edges += [one.table.starts[part], one.table.ends[part]]
        bounds = np.unique(np.concatenate(edges))
        if int(bounds[-1]) > num_rows:
            raise CorruptDataError(f"a zone map has rows behind the last one of fragment {fragment_id}")
        columns = {one.path: _between(one, part, bounds) for one, part in zones}
        keep = may_match(plan.predicate.asks, columns, len(bounds) - 1)
        return [cut for start, end in ranges for cut in kept_ranges(bounds, keep, start, end)]


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
            found.append(ColumnZoneMap(path=path, is_nested=is_nested, fragment_ids=fragment_ids, table=table))
    return replace(plan, zone_maps=ZoneMaps(columns=tuple(found))) if found else plan


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


def _between(column: ColumnZoneMap, part: slice, bounds: Int64s) -> ColumnZones:
    """What is known between each two bounds; nothing where there is no zone."""
    from lance_core.table.pruning import ColumnZones  # noqa: PLC0415 as above

    table = column.table
    starts, ends = table.starts[part], table.ends[part]
    zone = np.searchsorted(starts, bounds[:-1], side="right") - 1
    is_known = (zone >= 0) & (bounds[:-1] < ends[zone]) if len(ends) else np.zeros(len(zone), np.bool_)
    zone = np.where(is_known, zone + part.start, 0)
    places = pa.array(zone, mask=~is_known)
    # What is said of a zone says less of a part of it: the counts are those of the whole zone.
    return ColumnZones(
        num_rows=np.where(is_known, (table.ends - table.starts)[zone] if len(ends) else 0, _MAX_ROWS),
        null_count=np.where(is_known & (not column.is_nested), table.null_count[zone] if len(ends) else 0, -1),
        nan_count=np.where(is_known, table.nan_count[zone] if len(ends) else 0, -1),
        minimum=table.minimum.take(places),
        maximum=table.maximum.take(places),
    )
