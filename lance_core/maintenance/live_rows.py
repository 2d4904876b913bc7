"""Write the live rows of fragments into one new file: pages of small files are put together, others stream."""

from __future__ import annotations

from collections import deque
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lance_core.change.ingest import fit_batch
from lance_core.change.stage import FileStaging
from lance_core.errors import CorruptDataError, LanceError
from lance_core.file.write.page_copy import open_pages
from lance_core.file.write.page_merge import merge_pages
from lance_core.format.table.paths import data_file_path
from lance_core.scan.fragment_run import runs_of
from lance_core.scan.fragments import scan_fragment
from lance_core.table.locations import sized_reader
from lance_core.table.read_ahead import each

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from lance_core.encoding.repdef import Mask
    from lance_core.file.write.page_copy import PageSource
    from lance_core.format.schema import Field, Schema
    from lance_core.format.table.fragment import DataFile, Fragment
    from lance_core.format.table.manifest import Manifest
    from lance_core.maintenance.budget import Budget
    from lance_core.scan.fragment_reader import FragmentReader
    from lance_core.scan.open_files import OpenFiles
    from lance_core.scan.plan import ScanPlan
    from lance_core.store.base import ObjectReader, Store

_SMALL_FILE = 1 << 23
"""Larger files have enough to decode by themselves."""

_WHOLE_BYTES = _SMALL_FILE
"""Files of remote stores of at most so many bytes are read whole when they are opened: all their pages are wanted."""

_JOINED_BYTES = 1 << 26
_JOINED_FILES = 256
_ROWS_READ_TOGETHER = 1 << 14
"""Rows of all fragments up to which they are read and written as others are, many columns at one go: 74 ms instead of
148 for 100 fragments of 100 rows and 20 columns, but 107 instead of 72 for ten of 6,400 rows."""
_VERSIONS = {(2, 1): "2.1", (2, 2): "2.2"}
"""Versions whose pages can be put together; the new file must be of one of them, too."""


def live_batches(
    files: OpenFiles, readers: Sequence[FragmentReader], plan: ScanPlan, *, may_join: bool
) -> Iterator[pa.RecordBatch]:
    """Read the rows of some fragments that are not deleted, in order.

    Args:
        files: The dataset's open files.
        readers: The fragments.
        plan: What to read.
        may_join: Small fragments may be read together, which takes the memory of a scan.
    """
    sources = runs_of(files, [reader.fragment for reader in readers], plan) if may_join else readers
    return chain.from_iterable(scan_fragment(source, plan) for source in sources)


def stage_live_rows(
    files: OpenFiles,
    manifest: Manifest,
    readers: Sequence[FragmentReader],
    plan: ScanPlan,
    *,
    new_uuid: Callable[[], bytes],
    budget: Budget,
) -> tuple[Fragment, ...]:
    """Write the rows of some fragments that are not deleted, in order, into one new file.

    Args:
        files: The dataset's open files.
        manifest: The version that the fragments are from.
        readers: The fragments.
        plan: All columns of them.
        new_uuid: Where the name of the new file comes from.
        budget: How much may be in memory at the same time.

    Returns:
        A fragment with id 0; none if there are no rows.

    Raises:
        CorruptDataError: A file is damaged; nothing is left behind.
    """
    store, schema, version, page_bytes = files.store, manifest.schema, manifest.new_file_version, budget.page_bytes
    staging = FileStaging(store=store, fields=schema, version=version, new_uuid=new_uuid, page_bytes=page_bytes)
    try:
        for version, group in _groups(manifest, readers, min(budget.copy_bytes, _JOINED_BYTES)):
            if _can_merge(version, group) and _merged(store, manifest, group, plan, staging, page_bytes=page_bytes):
                continue
            for batch in live_batches(files, group, plan, may_join=budget.may_join):
                staging.write(fit_batch(batch, schema))
        staging.finish()
        staging.complete()
    except BaseException:
        staging.abort()
        raise
    return tuple(staging.fragments)


def _can_merge(version: str | None, readers: Sequence[FragmentReader]) -> bool:
    """Return whether pages of fragments are put together column by column, as `_groups` found them."""
    num_rows = sum([reader.fragment.physical_rows for reader in readers])
    return version is not None and len(readers) > 1 and num_rows > _ROWS_READ_TOGETHER


def _merged(
    store: Store,
    manifest: Manifest,
    readers: Sequence[FragmentReader],
    plan: ScanPlan,
    staging: FileStaging,
    *,
    page_bytes: int,
) -> bool:
    """Put the pages of some fragments together; False if they are not to be had one by one."""
    schema, fragments = manifest.schema, [reader.fragment for reader in readers]
    file = fragments[0].files[0]
    numbers = _VERSIONS[file.file_major_version, file.file_minor_version]
    with opened_pages(store, schema, fragments, version=numbers) as sources:
        if sources is None:
            return False
        is_live = _live_rows(readers)
        if is_live is not None and not is_live.any():
            return True
        try:
            staging.num_rows += merge_pages(
                sources,
                schema,
                staging.page_writer(),
                version=manifest.data_storage_version,
                page_bytes=page_bytes,
                selected=is_live,
            )
        except CorruptDataError:
            for reader in readers:  # which of them it is
                deque(scan_fragment(reader, plan), maxlen=0)
            raise
    return True


def _live_rows(readers: Sequence[FragmentReader]) -> Mask | None:
    """False for deleted rows of all fragments, one after the other; None if there are none."""
    masks = [reader.live_mask(0, reader.fragment.physical_rows) for reader in readers]
    if all(mask is None for mask in masks):
        return None
    return np.concatenate(
        [
            np.ones(reader.fragment.physical_rows, np.bool_) if mask is None else mask
            for reader, mask in zip(readers, masks, strict=True)
        ]
    )


def columns_of(file: DataFile, schema: Schema) -> list[int] | None:
    """Column of each field in a file, if all fields are single leaves; None if it does not have all of them."""
    columns = dict(zip(file.fields, file.column_indices, strict=True))
    numbers = [columns.get(field.id, -1) for field in schema.fields]
    return None if min(numbers) < 0 else numbers


def is_flat(field: Field) -> bool:
    """Return whether a field is one leaf whose pages stand for themselves."""
    if field.children or field.is_blob or not field.is_leaf:
        return False
    return not pa.types.is_dictionary(field.to_arrow().type)


@contextmanager
def opened_pages(
    store: Store, schema: Schema, fragments: Sequence[Fragment], *, version: str
) -> Generator[list[PageSource] | None]:
    """The pages of fragments of one file each; None if they are not to be had one by one. Closes the files.

    Args:
        store: The dataset.
        schema: Flat fields, which all files have.
        fragments: The fragments.
        version: Version that the files must have.

    Raises:
        CorruptDataError: A file is damaged.
    """
    with ExitStack() as opened:
        yield _open_all(store, schema, fragments, version, opened)


def _open_all(
    store: Store, schema: Schema, fragments: Sequence[Fragment], version: str, opened: ExitStack
) -> list[PageSource] | None:
    sources: list[PageSource] = []
    works = (partial(_open, store, schema, fragment.files[0], version) for fragment in fragments)
    for fragment, (reader, pages) in zip(fragments, each(store, works), strict=True):
        opened.callback(reader.close)
        if pages is None or pages.num_rows != fragment.physical_rows:
            return None
        sources.append(pages)
    return sources


def _open(store: Store, schema: Schema, file: DataFile, version: str) -> tuple[ObjectReader, PageSource | None]:
    """Open a file whose pages will all be read."""
    reader = sized_reader(store, data_file_path(file), file.file_size_bytes, most_bytes=_WHOLE_BYTES)
    path = f"{store.uri}/{data_file_path(file)}"
    try:
        return reader, open_pages(reader, path=path, version=version, columns=columns_of(file, schema) or [])
    except LanceError as error:
        error.path = path
        raise


def _groups(
    manifest: Manifest, readers: Sequence[FragmentReader], max_bytes: int
) -> Iterator[tuple[str | None, list[FragmentReader]]]:
    """Neighbours whose pages can be put together, and the version of their files; None for others."""
    schema = manifest.schema
    are_flat = bool(schema.fields) and all(map(is_flat, schema.fields))
    are_flat = are_flat and manifest.data_storage_version in _VERSIONS.values()
    group: list[FragmentReader] = []
    num_bytes, group_version = 0, None
    for reader in readers:
        version = _joinable(reader.fragment, schema) if are_flat else None
        size = reader.fragment.files[0].file_size_bytes if version else 0
        is_full = version is not None and (num_bytes + size > max_bytes or len(group) == _JOINED_FILES)
        if group and (version != group_version or is_full):
            yield group_version, group
            group, num_bytes = [], 0
        group.append(reader)
        num_bytes += size
        group_version = version
    if group:
        yield group_version, group


def _joinable(fragment: Fragment, schema: Schema) -> str | None:
    """Return the version of its only file, if that is small and has all columns."""
    if len(fragment.files) != 1:
        return None
    file = fragment.files[0]
    if not 0 < file.file_size_bytes <= _SMALL_FILE or columns_of(file, schema) is None:
        return None
    return _VERSIONS.get((file.file_major_version, file.file_minor_version))
