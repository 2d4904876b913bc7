"""Make zone maps: read a column, write what is known of each run of its rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.file.read.reader import DataFileReader
from lance_core.file.write.writer import DataFileWriter
from lance_core.format.index_metadata import IndexFields, IndexMetadata, make_index
from lance_core.format.paths import INDICES_FOLDER
from lance_core.format.schema import Schema
from lance_core.format.zone_map import (
    FILE_NAME,
    INDEX_VERSION,
    NULL_BITMAP_KEY,
    ROWS_PER_ZONE_KEY,
    TYPE_URL,
    encode_details,
    encode_null_bitmap,
    has_zone_map,
    zone_schema,
)
from lance_core.frozen import frozen
from lance_core.scan.fragment_reader import FragmentReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lance_core.format.fragment import Fragment
    from lance_core.format.schema import Field
    from lance_core.scan.open_files import OpenFiles
    from lance_core.store.base import Store

_BATCH_ROWS = 1 << 16
_FILE_VERSION = "2.1"


@frozen(kw_only=True)
class IndexedColumn:
    """A column to index.

    Attributes:
        path: Name, or dotted path inside structs.
        projection: What must be read for it.
        leaf: The field itself.
    """

    path: str
    projection: Schema
    leaf: Field


@dataclass(slots=True)
class _Zones:
    """Rows of the file that is being made, column by column."""

    minimum: list[pa.Scalar]
    maximum: list[pa.Scalar]
    counts: list[tuple[int, int, int, int, int]]
    nulls: dict[int, npt.NDArray[np.int64]]


def indexed_column(schema: Schema, path: str) -> IndexedColumn:
    """Find a column that a zone map can be made of.

    Raises:
        InvalidInputError: There is no such column.
        UnsupportedError: Its type has no zone maps.
    """
    top = path if path in schema.names else path.split(".", 1)[0]
    if top not in schema.names:
        raise InvalidInputError(f"no column {path!r}; the table has {', '.join(schema.names)}")
    projection = schema.select([path])
    leaf = projection.fields[0]
    for _ in path[len(top) :].split(".")[1:]:
        if leaf.logical_type != "struct":
            raise UnsupportedError(f"column {path!r} is inside of {leaf.name!r}, for which zone maps cannot be made")
        leaf = leaf.children[0]
    kind = leaf.to_arrow().type
    if leaf.children or not has_zone_map(kind):
        raise UnsupportedError(f"column {path!r} has type {kind}, for which zone maps cannot be made")
    return IndexedColumn(path=path, projection=projection, leaf=leaf)


def build_zone_map(
    files: OpenFiles,
    fragments: Iterable[Fragment],
    column: IndexedColumn,
    *,
    name: str,
    uuid: bytes,
    rows_per_zone: int,
    dataset_version: int,
    now_ms: int,
) -> IndexMetadata:
    """Write a zone map of some fragments, which nobody uses before it is committed.

    Args:
        files: The dataset's open files.
        fragments: What to look at.
        column: The column.
        name: Name of the index.
        uuid: 16 random bytes.
        rows_per_zone: Rows in each zone but the last of a fragment.
        dataset_version: Version that the fragments are of.
        now_ms: Milliseconds since 1970.

    Returns:
        The index entry.
    """
    zones = _Zones([], [], [], {})
    fragment_ids: list[int] = []
    for fragment in fragments:
        fragment_ids.append(fragment.id)
        zones.nulls[fragment.id] = _look(FragmentReader(files, fragment), column, rows_per_zone, zones)
    digits = uuid.hex()
    folder = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    size = _write(files.store, f"{INDICES_FOLDER}/{folder}/{FILE_NAME}", column, zones, rows_per_zone)
    return make_index(
        IndexFields(
            uuid=uuid,
            name=name,
            fields=(column.leaf.id,),
            dataset_version=dataset_version,
            fragment_ids=frozenset(fragment_ids),
            index_version=INDEX_VERSION,
            created_at=now_ms,
            files=((FILE_NAME, size),),
            details=(TYPE_URL, encode_details(rows_per_zone=rows_per_zone)),
        )
    )


def rows_per_zone_of(store: Store, path: str) -> int | None:
    """Rows in each zone of a zone map, as its file tells."""
    reader = DataFileReader(store.reader(path), path=f"{store.uri}/{path}")
    text = reader.schema.metadata.get(ROWS_PER_ZONE_KEY, b"")
    return int(text) if text.isdigit() and int(text) else None


def _look(reader: FragmentReader, column: IndexedColumn, rows_per_zone: int, zones: _Zones) -> npt.NDArray[np.int64]:
    """Add the zones of a fragment; the offsets of its null rows. Deleted rows count like others."""
    import pyarrow.compute as pc  # noqa: PLC0415 keeps `import lance_core` light

    kernels: Any = pc
    start = 0
    nulls: list[npt.NDArray[np.int64]] = []
    for values in _by_zone(_values(reader, column), rows_per_zone):
        low, high, nan_count = _extremes(kernels, values)
        zones.minimum.append(low)
        zones.maximum.append(high)
        zones.counts.append((values.null_count, nan_count, reader.fragment.id, start, len(values)))
        if values.null_count:
            nulls.append(np.flatnonzero(np.asarray(values.is_null())) + start)
        start += len(values)
    return np.concatenate(nulls) if nulls else np.empty(0, np.int64)


def _values(reader: FragmentReader, column: IndexedColumn) -> Iterator[pa.Array]:
    import pyarrow.compute as pc  # noqa: PLC0415 as above

    kernels: Any = pc
    end = reader.fragment.physical_rows
    for rows in reader.scan(column.projection, start=0, end=end, batch_size=_BATCH_ROWS):
        values = rows.columns[0]
        kind = values.type
        while pa.types.is_struct(kind):
            values = kernels.struct_field(values, kind.field(0).name)
            kind = values.type
        yield values


def _by_zone(arrays: Iterable[pa.Array], rows_per_zone: int) -> Iterator[pa.Array]:
    """The same values, cut so that each array is a zone."""
    pending: list[pa.Array] = []
    missing = rows_per_zone
    for array in arrays:
        position = 0
        while position < len(array):
            piece = array.slice(position, missing)
            pending.append(piece)
            position += len(piece)
            missing -= len(piece)
            if not missing:
                yield pa.concat_arrays(pending)
                pending, missing = [], rows_per_zone
    if pending:
        yield pa.concat_arrays(pending)


def _extremes(kernels: Any, values: pa.Array) -> tuple[pa.Scalar, pa.Scalar, int]:
    """Smallest and largest value, and how many are NaN."""
    kind = values.type
    if not pa.types.is_floating(kind):
        is_duration = pa.types.is_duration(kind)  # for which Arrow has no kernel
        found = kernels.min_max(values.cast(pa.int64()) if is_duration else values)
        return found["min"].cast(kind), found["max"].cast(kind), 0
    wide = values.cast(pa.float64()).drop_null().to_numpy(zero_copy_only=False)
    is_nan = np.isnan(wide)
    nans, numbers = wide[is_nan], wide[~is_nan]
    # Zeros of both signs are the same number, but others may order them.
    low, high = (float(numbers.min()) or -0.0, float(numbers.max()) or 0.0) if len(numbers) else (None, None)
    # NaN is larger than every number, as in pylance. Negative NaN is smaller; pylance finds neither it nor any number
    # in zones that begin with NaN, so these begin with -inf. Its own zone maps forget negative NaN.
    if len(nans):
        high = math.nan
        low = -math.inf if np.signbit(nans).any() else math.nan if low is None else low
    return (*(pa.scalar(one, pa.float64()).cast(kind) for one in (low, high)), len(nans))


def _write(store: Store, path: str, column: IndexedColumn, zones: _Zones, rows_per_zone: int) -> int:
    kind = column.leaf.to_arrow().type
    schema = zone_schema(kind)
    extremes = [_array(side, kind) for side in (zones.minimum, zones.maximum)]
    counts = np.array(zones.counts, np.uint64).reshape(-1, 5)
    numbers = [pa.array(counts[:, place]).cast(schema.field(place + 2).type) for place in range(5)]
    sink = store.writer(path)
    writer = DataFileWriter(sink, Schema.from_arrow(schema), version=_FILE_VERSION)
    try:
        writer.write(pa.RecordBatch.from_arrays([*extremes, *numbers], schema=schema))
        number = writer.add_global_buffer(encode_null_bitmap(zones.nulls))
        writer.add_schema_metadata(NULL_BITMAP_KEY, str(number).encode())
        writer.add_schema_metadata(ROWS_PER_ZONE_KEY, str(rows_per_zone).encode())
        return writer.finish().size
    except BaseException:
        writer.abort()
        raise


def _array(scalars: list[pa.Scalar], kind: pa.DataType) -> pa.Array:
    """One array of scalars, without a detour through Python's types, which hold less."""
    return pa.concat_arrays([pa.array([], kind), *(pa.repeat(one, 1).cast(kind) for one in scalars)])
