"""The fragment reuse index of a version: read where it lies, and coverage of indices as it is after its compactions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_core.common.frozen import replace
from lance_core.common.limits import check_limit
from lance_core.errors import CorruptDataError
from lance_core.format.table.fragment import ExternalFile
from lance_core.format.table.fragment_reuse import (
    NAME,
    current_coverage,
    decode_fragment_reuse,
    decode_versions,
    find_fragment_reuse,
)
from lance_core.format.table.manifest import index_section_of
from lance_core.format.table.paths import INDICES_FOLDER, base_prefix, external_file_path
from lance_core.table.locations import with_bases

if TYPE_CHECKING:
    from lance_core.format.table.fragment_reuse import ReuseVersion
    from lance_core.format.table.index_metadata import IndexMetadata
    from lance_core.format.table.manifest import Manifest
    from lance_core.store.base import Store


def load_fragment_reuse(store: Store, index: IndexMetadata) -> tuple[ReuseVersion, ...] | None:
    """Read the versions of a fragment reuse index, the oldest first; None if its layout is not known.

    Args:
        store: The dataset, with its base paths.
        index: Its entry.

    Raises:
        CorruptDataError: It is damaged.
        NotFoundError: Its file is missing.
    """
    content = decode_fragment_reuse(index)
    if not isinstance(content, ExternalFile):
        return content
    path = f"{base_prefix(index.base_id)}{INDICES_FOLDER}/{index.uuid_text}/{external_file_path(content)}"
    check_limit("max_manifest_bytes", content.size, "bytes of a fragment reuse index", path=path)
    source = store.reader(path)
    try:
        end = content.offset + content.size
        if end > source.size:
            raise CorruptDataError(f"the index ends at byte {end} of a file of {source.size} bytes", path=path)
        (data,) = source.read_ranges([(content.offset, end)])
        return decode_versions(data.to_pybytes(), path=path)
    finally:
        source.close()


def with_current_coverage(store: Store, manifest: Manifest) -> Manifest:
    """Return the manifest with indices that cover the fragments after compactions instead of those before.

    A compaction of pylance with deferred remap leaves the entries of indices as they are; each later commit of either
    library writes them anew.

    Raises:
        CorruptDataError: The fragment reuse index is damaged or its file is missing.
    """
    section = manifest.index_section
    if section is None or NAME.encode() not in section:
        return manifest
    indices = manifest.indices
    entry = find_fragment_reuse(indices)
    live = frozenset(manifest.fragments.ids.tolist())
    if entry is None or all(live.issuperset(index.fragment_ids or ()) for index in indices):
        return manifest
    versions = load_fragment_reuse(with_bases(store, manifest), entry)
    if not versions:
        return manifest
    current = tuple(current_coverage(index, versions) for index in indices)
    return manifest if current == indices else replace(manifest, index_section=index_section_of(current))
