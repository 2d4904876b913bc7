"""The rows that a rewriting has to write: small files side by side, so that their pages are decoded together."""

from __future__ import annotations

from collections import deque
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lance_core.errors import CorruptDataError, LanceError
from lance_core.file.joined import join_files
from lance_core.file.page_copy import open_pages
from lance_core.format.paths import data_file_path
from lance_core.table.deletions import live_mask
from lance_core.table.scan import scan_fragment

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from lance_core.file.page_copy import PageSource
    from lance_core.format.fragment import DataFile, Fragment
    from lance_core.format.schema import Field, Schema
    from lance_core.store.base import Store
    from lance_core.table.deletions import Offsets
    from lance_core.table.fragment_reader import FragmentReader
    from lance_core.table.scan_plan import ScanPlan

_SMALL_FILE = 1 << 23
"""Larger files have enough to decode by themselves."""

_JOINED_BYTES = 1 << 26
_JOINED_FILES = 256
_VERSIONS = {(2, 1): "2.1", (2, 2): "2.2"}


def read_live_rows(
    store: Store, schema: Schema, readers: Sequence[FragmentReader], plan: ScanPlan, *, max_bytes: int
) -> Iterator[pa.RecordBatch]:
    """Rows of some fragments that are not deleted, in order.

    Args:
        store: The dataset.
        schema: Its schema.
        readers: The fragments.
        plan: All columns of them.
        max_bytes: Bytes of files that are in memory at the same time.

    Raises:
        CorruptDataError: A file is damaged.
    """
    for group in _groups(schema, readers, min(max_bytes, _JOINED_BYTES)):
        if len(group) == 1:
            yield from scan_fragment(group[0], plan)
            continue
        try:
            yield from _read_joined(store, schema, group, plan)
        except CorruptDataError:
            for reader in group:  # which of them it is
                deque(scan_fragment(reader, plan), maxlen=0)
            raise


def columns_of(file: DataFile, schema: Schema) -> list[int] | None:
    """Column of each field in a file, if all fields are single leaves; None if it does not have all of them."""
    known = dict(zip(file.fields, file.column_indices, strict=True))
    found = [known.get(field.id, -1) for field in schema.fields]
    return None if min(found) < 0 else found


def is_flat(field: Field) -> bool:
    """Whether a field is one leaf whose pages stand for themselves."""
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
    for fragment in fragments:
        file = fragment.files[0]
        reader = store.reader(data_file_path(file))
        opened.callback(reader.close)
        path = f"{store.uri}/{data_file_path(file)}"
        try:
            found = open_pages(reader, path=path, version=version, columns=columns_of(file, schema) or [])
        except LanceError as error:
            error.path = path
            raise
        if found is None or found.num_rows != fragment.physical_rows:
            return None
        sources.append(found)
    return sources


def _groups(schema: Schema, readers: Sequence[FragmentReader], max_bytes: int) -> Iterator[list[FragmentReader]]:
    """Neighbours that can be read together; others by themselves."""
    are_flat = bool(schema.fields) and all(map(is_flat, schema.fields))
    group: list[FragmentReader] = []
    num_bytes, version = 0, ""
    for reader in readers:
        own = _joinable(reader.fragment, schema) if are_flat else None
        size = reader.fragment.files[0].file_size_bytes if own else 0
        if group and (own != version or num_bytes + size > max_bytes or len(group) == _JOINED_FILES):
            yield group
            group, num_bytes = [], 0
        if own is None:
            yield [reader]
            continue
        group.append(reader)
        num_bytes += size
        version = own
    if group:
        yield group


def _joinable(fragment: Fragment, schema: Schema) -> str | None:
    """The version of its only file, if that is small and has all columns."""
    if len(fragment.files) != 1:
        return None
    file = fragment.files[0]
    if not 0 < file.file_size_bytes <= _SMALL_FILE or columns_of(file, schema) is None:
        return None
    return _VERSIONS.get((file.file_major_version, file.file_minor_version))


def _read_joined(
    store: Store, schema: Schema, readers: Sequence[FragmentReader], plan: ScanPlan
) -> Iterator[pa.RecordBatch]:
    file = readers[0].fragment.files[0]
    version = _VERSIONS[file.file_major_version, file.file_minor_version]
    fragments = [one.fragment for one in readers]
    with opened_pages(store, schema, fragments, version=version) as sources:
        if sources is None:
            for reader in readers:
                yield from scan_fragment(reader, plan)
            return
        joined = join_files(sources, schema, version=version, path=f"{store.uri}/{data_file_path(file)} and others")
    rows = np.concatenate([[0], np.cumsum([one.physical_rows for one in fragments])])
    deleted = np.concatenate([one.deleted + first for one, first in zip(readers, rows[:-1], strict=True)])
    columns = {field.id: number for number, field in enumerate(schema.fields)}
    batches = joined.scan(schema, columns, start=0, end=int(rows[-1]), batch_size=plan.batch_size)
    yield from _live(batches, deleted)


def _live(batches: Iterator[pa.RecordBatch], deleted: Offsets) -> Iterator[pa.RecordBatch]:
    start = 0
    for batch in batches:
        mask = live_mask(deleted, start, start + batch.num_rows)
        start += batch.num_rows
        yield batch if mask is None else batch.filter(pa.array(mask))
