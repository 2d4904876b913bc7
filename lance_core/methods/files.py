"""Methods of `LanceDataset` about the objects that it is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from lance_core.errors import DatasetNotFoundError, InvalidInputError
from lance_core.format.paths import BRANCH_FILES_FOLDER, TABLE_FOLDERS, VERSIONS_FOLDER
from lance_core.table.open_table import open_line
from lance_core.table.snapshot import open_snapshot

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping

    from lance_core.dataset import LanceDataset
    from lance_core.store.base import Store

_BATCH = 1000
_FOLDERS = (*TABLE_FOLDERS, "_refs", BRANCH_FILES_FOLDER)
_ALL_FILES = pa.schema(
    [
        pa.field("base_uri", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("path", pa.string(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("last_modified", pa.timestamp("us", "UTC"), nullable=False),
    ]
)


def all_files(dataset: LanceDataset) -> pa.RecordBatchReader:
    """The files there are, whether a version needs them or not.

    Other base paths are not looked at, nor what somebody else put beside the folders of the format.

    Returns:
        base_uri (dictionary of text), path below it, size_bytes (int64) and last_modified (microseconds, UTC).
    """
    return pa.RecordBatchReader.from_batches(_ALL_FILES, _listed(dataset.snapshot.store))


def drop(
    base_uri: str | os.PathLike[str],
    storage_options: Mapping[str, str] | None = None,
    ignore_not_found: bool | None = None,
) -> None:
    """Delete a dataset with all its versions, branches and tags.

    What somebody else put beside the folders of the format stays; pylance deletes that, too. Nobody may write to it at
    the same time: what is written meanwhile can stay behind.

    Args:
        base_uri: Address of the dataset, not of a branch of it.
        storage_options: Settings of the storage service.
        ignore_not_found: It is no error if there is no such dataset.

    Raises:
        DatasetNotFoundError: There is no dataset, and nothing was deleted.
        InvalidInputError: It is a branch; `LanceDataset.branches` deletes these.
        CorruptDataError: The newest version cannot be read; it may be no dataset at all, so nothing was deleted.
    """
    store = open_line(base_uri, storage_options)
    try:
        snapshot = open_snapshot(store)
    except DatasetNotFoundError:
        if ignore_not_found:
            return
        raise
    if snapshot.manifest.branch is not None:
        raise InvalidInputError("this is a branch; delete it with branches.delete", path=store.uri)
    paths = [info.path for folder in _FOLDERS for info in store.list(folder)]
    # Versions go last: as long as one is there, an interrupted deletion can be repeated.
    paths.sort(key=lambda path: path.startswith(f"{VERSIONS_FOLDER}/"))
    for start in range(0, len(paths), _BATCH):
        store.delete(paths[start : start + _BATCH])


def _listed(store: Store) -> Iterator[pa.RecordBatch]:
    rows: list[tuple[object, ...]] = []
    for info in (one for folder in _FOLDERS for one in store.list(folder)):
        rows.append((info.path, info.size, info.modified))
        if len(rows) == _BATCH:
            yield _batch(store.uri, rows)
            rows = []
    if rows:
        yield _batch(store.uri, rows)


def _batch(uri: str, rows: list[tuple[object, ...]]) -> pa.RecordBatch:
    places = pa.DictionaryArray.from_arrays(pa.array([0] * len(rows), pa.int32()), pa.array([uri]))
    columns = [
        pa.array(column, field.type)
        for column, field in zip(zip(*rows, strict=True), list(_ALL_FILES)[1:], strict=True)
    ]
    return pa.RecordBatch.from_arrays([places, *columns], schema=_ALL_FILES)
