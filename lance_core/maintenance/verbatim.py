"""Rewriting without decoding: fragments without deleted rows, whose pages are large enough to be kept as they are."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from lance_core.change.stage import FileStaging
from lance_core.file.write.page_copy import copy_pages
from lance_core.maintenance.live_rows import columns_of, is_flat, opened_pages
from lance_core.table.naming import naming

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lance_core.format.table.fragment import Fragment
    from lance_core.format.table.manifest import Manifest
    from lance_core.store.base import Store

MIN_PAGE_BYTES = 1 << 16
"""Pages that are smaller on average are decoded and put together, so that the table can be read faster."""

_VERSIONS = frozenset({"2.1", "2.2"})
_GROUP_FILES = 256


def can_copy(manifest: Manifest, fragments: Sequence[Fragment], *, min_page_bytes: int = MIN_PAGE_BYTES) -> bool:
    """Return whether the manifest allows to copy the pages of some fragments; their files may still say otherwise.

    Args:
        manifest: The version that the fragments are from.
        fragments: The fragments.
        min_page_bytes: Bytes that pages must have on average.
    """
    schema = manifest.schema
    if manifest.data_storage_version not in _VERSIONS or not schema.fields or not all(map(is_flat, schema.fields)):
        return False
    if any(fragment.deletion_file is not None or len(fragment.files) != 1 for fragment in fragments):
        return False
    files = [fragment.files[0] for fragment in fragments]
    if any(file.base_id is not None or columns_of(file, schema) is None for file in files):
        return False
    num_bytes = sum(file.file_size_bytes for file in files)
    return num_bytes >= min_page_bytes * len(files) * len(schema.fields)


def stage_copy(
    store: Store,
    manifest: Manifest,
    fragments: Sequence[Fragment],
    *,
    new_uuid: Callable[[], bytes] = lambda: uuid.uuid4().bytes,
    max_bytes: int,
) -> tuple[Fragment, ...] | None:
    """Put the pages of some fragments into one new file.

    Args:
        store: The dataset.
        manifest: The version that the fragments are from; `can_copy` must hold.
        fragments: The fragments.
        new_uuid: Where the name of the new file comes from.
        max_bytes: Bytes of files that are in memory at the same time.

    Returns:
        One fragment with id 0; None if a file turned out not to be fit for it, and then nothing is left behind.

    Raises:
        CorruptDataError: A file is damaged; nothing is left behind.
    """
    staging = FileStaging(store=store, fields=manifest.schema, version=manifest.data_storage_version, new_uuid=new_uuid)
    try:
        with naming(store):
            for group in _groups(fragments, max_bytes):
                if not _copy_group(store, manifest, group, staging, max_bytes):
                    staging.abort()
                    return None
            staging.finish()
        staging.complete()
    except BaseException:
        staging.abort()
        raise
    return tuple(staging.fragments)


def _copy_group(
    store: Store, manifest: Manifest, group: Sequence[Fragment], staging: FileStaging, max_bytes: int
) -> bool:
    version = manifest.data_storage_version
    with opened_pages(store, manifest.schema, group, version=version) as sources:
        if sources is None:
            return False
        copy_pages(sources, staging.page_writer(), max_bytes=max_bytes)
        staging.num_rows += sum(source.num_rows for source in sources)
    return True


def _groups(fragments: Sequence[Fragment], max_bytes: int) -> Iterator[list[Fragment]]:
    """Fragments whose files fit into memory together; one that does not fit is a group of its own."""
    group: list[Fragment] = []
    num_bytes = 0
    for fragment in fragments:
        size = fragment.files[0].file_size_bytes
        if group and (num_bytes + size > max_bytes or len(group) == _GROUP_FILES):
            yield group
            group, num_bytes = [], 0
        group.append(fragment)
        num_bytes += size
    if group:
        yield group
