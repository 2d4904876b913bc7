"""Descriptions of the indices of a version, without opening their files."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from lance_core.common.frozen import frozen
from lance_core.common.unsupported import late_names
from lance_core.errors import NotFoundError
from lance_core.format.index.vector_index import TYPE_URL, decode_details
from lance_core.format.table.index_metadata import index_fields, index_kind
from lance_core.index.column import find_column, path_of
from lance_core.index.files import SegmentFiles
from lance_core.scan.deletions import contains

if TYPE_CHECKING:
    from lance_core.format.table.index_metadata import IndexMetadata
    from lance_core.format.table.manifest import Manifest
    from lance_core.scan.open_files import OpenFiles

SYSTEM_PREFIX = "__lance"
"""Begin of the names of indices that the format itself keeps."""


@frozen(kw_only=True)
class IndexSegmentDescription:
    """One part of an index, with files of its own.

    Attributes:
        uuid: Name of its folder.
        dataset_version_at_last_update: Version it was made from.
        fragment_ids: Fragments that it covers; empty if the writer did not record them.
        index_version: Layout of its files.
        created_at: When it was made, UTC; None if the writer did not record it.
        size_bytes: Bytes in its files; None if the writer did not record them.
        base_id: Base path that it lies below; None for the dataset itself.
        covering_fields: Ids of fields whose values it stores.
    """

    uuid: str
    dataset_version_at_last_update: int
    fragment_ids: frozenset[int]
    index_version: int
    created_at: datetime | None
    size_bytes: int | None
    base_id: int | None
    covering_fields: tuple[int, ...]


@frozen(kw_only=True)
class IndexDescription:
    """One index.

    Attributes:
        name: Its name.
        index_type: Kind, as pylance calls it; ``Vector`` for a vector index that does not tell its codes,
            ``Unknown`` if nothing tells.
        type_url: Name of the message with the details of its kind.
        fields: Ids of the indexed fields.
        field_names: Dotted paths of the indexed fields.
        num_rows_indexed: Rows in the fragments that it covers, deleted ones left out.
        segments: Its parts.
        total_size_bytes: Bytes in its files; None if a writer did not record them.
    """

    name: str
    index_type: str
    type_url: str
    fields: list[int]
    field_names: list[str]
    num_rows_indexed: int
    segments: list[IndexSegmentDescription]
    total_size_bytes: int | None

    @property
    def can_be_extended(self) -> bool:
        """True if `optimize_indices` of lance_core extends indices of its type. Not in pylance."""
        from lance_core.index.kinds import KINDS  # noqa: PLC0415 rarely needed
        from lance_core.index.vector.train import INDEX_TYPES  # noqa: PLC0415 rarely needed

        return self.index_type in INDEX_TYPES or self.type_url.lower() in {
            kind.type_url.lower() for kind in KINDS.values()
        }


def describe(manifest: Manifest) -> list[IndexDescription]:
    """Return the indices of a version by name; those that the format itself keeps are left out."""
    by_name = _segments_by_name(manifest)
    return [_describe(manifest, name, by_name[name]) for name in sorted(by_name)]


def list_segments(manifest: Manifest) -> list[dict[str, Any]]:
    """Return the segments of all indices by name, as `list_indices` has them; no rows are counted."""
    segments: list[dict[str, Any]] = []
    for name, entries in sorted(_segments_by_name(manifest).items()):
        index_type, field_names = _index_type(entries[0]), _field_names(manifest, entries[0])
        segments += [
            {
                "name": name,
                "type": index_type,
                "uuid": segment.uuid,
                "fields": field_names,
                "version": segment.dataset_version_at_last_update,
                "fragment_ids": segment.fragment_ids,
                "base_id": segment.base_id,
            }
            for segment in map(_segment, entries)
        ]
    return segments


def statistics(manifest: Manifest, files: OpenFiles, name: str) -> dict[str, Any]:
    """Numbers about one index, as pylance has them.

    Args:
        manifest: The version.
        files: The dataset's open files; segments stay open with them.
        name: Name of the index.

    Returns:
        Counts of segments, fragments and rows, and of each segment what its kind tells: for zone maps ``num_zones`` and
        ``rows_per_zone``, for vector indices ``index_type``, ``metric_type``, ``num_partitions``, ``partitions`` with
        the ``size`` of each, and ``imbalance``, the largest as a multiple of the average. Of kinds that lance_core does
        not build nothing is told that only their files know.

    Raises:
        NotFoundError: There is no such index.
    """
    entries = _segments_by_name(manifest).get(name)
    if entries is None:
        raise NotFoundError(f"there is no index {name!r}", path=files.store.uri)
    match = _describe(manifest, name, entries)
    covered = {number for segment in match.segments for number in segment.fragment_ids}
    num_rows = dict(zip(manifest.fragments.ids.tolist(), manifest.fragments.num_rows.tolist(), strict=True))
    live = covered & num_rows.keys()
    stamps = [segment.created_at for segment in match.segments if segment.created_at is not None]
    details = [_numbers_of(manifest, files, index) for index in entries]
    return {
        "index_type": match.index_type,
        "name": name,
        "num_indices": len(match.segments),
        "num_segments": len(match.segments),
        "indices": details,
        "segments": details,
        "num_indexed_fragments": len(live),
        "num_indexed_rows": sum(num_rows[number] for number in live),
        "num_unindexed_fragments": len(num_rows) - len(live),
        "num_unindexed_rows": sum(num_rows.values()) - sum(num_rows[number] for number in live),
        "num_indexed_rows_per_delta": [
            sum(num_rows.get(number, 0) for number in segment.fragment_ids) for segment in match.segments
        ],
        "updated_at_timestamp_ms": round(max(stamps).timestamp() * 1000) if stamps else None,
    }


def _segments_by_name(manifest: Manifest) -> dict[str, list[IndexMetadata]]:
    """Return the entries of each index; those that the format itself keeps are left out."""
    by_name: dict[str, list[IndexMetadata]] = {}
    for index in manifest.indices:
        if not index.name.startswith(SYSTEM_PREFIX):
            by_name.setdefault(index.name, []).append(index)
    return by_name


def _describe(manifest: Manifest, name: str, entries: list[IndexMetadata]) -> IndexDescription:
    segments = [_segment(index) for index in entries]
    covered = np.array(sorted(frozenset[int]().union(*[segment.fragment_ids for segment in segments])), np.int64)
    is_covered = contains(covered, manifest.fragments.ids)
    sizes = [segment.size_bytes for segment in segments]
    first = index_fields(entries[0])
    return IndexDescription(
        name=name,
        index_type=_index_type(entries[0]),
        type_url=first.details[0] if first.details else "",
        fields=list(first.fields),
        field_names=_field_names(manifest, entries[0]),
        num_rows_indexed=int(manifest.fragments.num_rows[is_covered].sum()),
        segments=segments,
        total_size_bytes=None if None in sizes else sum(size for size in sizes if size is not None),
    )


def _field_names(manifest: Manifest, index: IndexMetadata) -> list[str]:
    return [path_of(manifest.schema, field_id) for field_id in index.fields]


def _index_type(index: IndexMetadata) -> str:
    details = index_fields(index).details
    if details is not None and details[0].lower() == TYPE_URL.lower():
        return decode_details(details[1]).index_type or index_kind(index)
    return index_kind(index)


@lru_cache(maxsize=64)
def _segment(index: IndexMetadata) -> IndexSegmentDescription:
    fields = index_fields(index)
    stamp = fields.created_at
    return IndexSegmentDescription(
        uuid=index.uuid_text,
        dataset_version_at_last_update=fields.dataset_version,
        fragment_ids=fields.fragment_ids or frozenset(),
        index_version=fields.index_version,
        created_at=None if stamp is None else datetime.fromtimestamp(stamp / 1000, UTC),
        size_bytes=sum(size for _, size in fields.files) if fields.files else None,
        base_id=fields.base_id,
        covering_fields=fields.covering_fields,
    )


def _numbers_of(manifest: Manifest, files: OpenFiles, index: IndexMetadata) -> dict[str, Any]:
    """Return the numbers of a segment that the kind of its index provides; empty if lance_core cannot read it."""
    from lance_core.index.kinds import kind_of_index  # noqa: PLC0415 rarely needed

    kind = kind_of_index(index)
    column = find_column(manifest.schema, path_of(manifest.schema, index.fields[0])) if index.fields else None
    if kind is None or column is None or not kind.takes(column.type):
        return {}
    segment = files.index_segment(index.uuid, lambda: kind.open(SegmentFiles.of(files.store, index), column))
    return dict(segment.statistics)


__getattr__ = late_names(__name__)
