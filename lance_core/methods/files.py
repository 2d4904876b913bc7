"""Methods of `LanceDataset` about the objects that it is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from lance_core.common.frozen import replace
from lance_core.errors import DatasetNotFoundError, InvalidInputError, VersionNotFoundError
from lance_core.format.table.index_metadata import index_fields
from lance_core.format.table.paths import (
    BRANCH_FILES_FOLDER,
    DAMAGED_FOLDER,
    INDICES_FOLDER,
    TABLE_FOLDERS,
    VERSIONS_FOLDER,
    data_file_path,
    deletion_file_path,
    manifest_path,
    path_in_base,
    transaction_path,
)
from lance_core.table.locations import remove_empty_folders
from lance_core.table.open_table import open_branch
from lance_core.table.snapshot import decode_version, find_versions, open_snapshot

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping

    from lance_core.format.table.manifest import Manifest
    from lance_core.methods.protocols import OpenDataset
    from lance_core.store.base import Store

_BATCH = 1000
_FOLDERS = (*TABLE_FOLDERS, "_refs", BRANCH_FILES_FOLDER, DAMAGED_FOLDER)
_KINDS = ["manifest", "data file", "deletion file", "transaction file", "index file"]
_TRACKED = pa.schema(
    [
        pa.field("version", pa.int64(), nullable=False),
        pa.field("base_uri", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("path", pa.string(), nullable=False),
        pa.field("type", pa.dictionary(pa.int8(), pa.string()), nullable=False),
    ]
)
_ALL_FILES = pa.schema(
    [
        pa.field("base_uri", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("path", pa.string(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("last_modified", pa.timestamp("us", "UTC"), nullable=False),
    ]
)


def all_files(dataset: OpenDataset) -> pa.RecordBatchReader:
    """The files there are, whether a version needs them or not.

    Other base paths are not looked at, nor what somebody else put beside the folders of the format.

    Returns:
        base_uri (dictionary of text), path below it, size_bytes (int64) and last_modified (microseconds, UTC).
    """
    return pa.RecordBatchReader.from_batches(_ALL_FILES, _listed(dataset.snapshot.store))


def tracked_files(
    dataset: OpenDataset,
    *,
    min_version: int | None = None,
    progress: Callable[[int, int | None], None] | None = None,
) -> pa.RecordBatchReader:
    """Return the files that versions of this branch need, once for each version.

    Args:
        min_version: Leave out older versions.
        progress: Called after each version, with the number of those that are done and of all.

    Returns:
        version (int64), base_uri (dictionary of text), path below it, and type (dictionary of text): manifest,
        transaction file, data file, deletion file, index file. Versions ascend; index files are those that their
        entries name.
    """
    return pa.RecordBatchReader.from_batches(_TRACKED, _tracked(dataset.snapshot.store, min_version or 0, progress))


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
    store = open_branch(base_uri, storage_options)
    try:
        snapshot = open_snapshot(store)
    except DatasetNotFoundError:
        if ignore_not_found:
            return
        raise
    if snapshot.manifest.branch is not None:
        raise InvalidInputError("cannot drop a branch as a dataset. Use 'branches.delete'", path=store.uri)
    paths = [info.path for folder in _FOLDERS for info in store.list(folder)]
    # Versions go last: as long as one is there, an interrupted deletion can be repeated.
    paths.sort(key=lambda path: path.startswith(f"{VERSIONS_FOLDER}/"))
    for start in range(0, len(paths), _BATCH):
        store.delete(paths[start : start + _BATCH])
    remove_empty_folders(store, "")


def _tracked(
    store: Store, min_version: int, progress: Callable[[int, int | None], None] | None
) -> Iterator[pa.RecordBatch]:
    versions = find_versions(store)
    numbers = [number for number in versions.numbers if number >= min_version]
    for done, number in enumerate(numbers, 1):
        try:
            manifest = decode_version(store, number, naming=versions.naming)
        except VersionNotFoundError:
            continue  # cleaned up since it was listed
        rows = list(_needed(manifest, manifest_path(number, versions.naming)))
        bases = {base.id: base.path for base in manifest.base_paths}
        uris = [store.uri, *bases.values()]
        keys = {None: 0, **{base: position for position, base in enumerate(bases, 1)}}
        yield pa.RecordBatch.from_arrays(
            [
                pa.array([number] * len(rows), pa.int64()),
                pa.DictionaryArray.from_arrays(
                    pa.array([keys[base] for base, _, _ in rows], pa.int32()), pa.array(uris)
                ),
                pa.array([path for _, path, _ in rows]),
                pa.DictionaryArray.from_arrays(
                    pa.array([_KINDS.index(kind) for _, _, kind in rows], pa.int8()), pa.array(_KINDS)
                ),
            ],
            schema=_TRACKED,
        )
        if progress is not None:
            progress(done, len(numbers))


def _needed(manifest: Manifest, path: str) -> Iterator[tuple[int | None, str, str]]:
    """Base path, path below it and kind of each file that a version needs."""
    yield None, path, "manifest"
    if manifest.transaction_file:
        yield None, transaction_path(manifest.transaction_file), "transaction file"
    roots = {base.id: base.is_dataset_root for base in manifest.base_paths}

    def below(base_id: int | None, path: str) -> str:
        return path if base_id is None else path_in_base(path, is_dataset_root=roots.get(base_id, True))

    for fragment in manifest.fragments:
        for file in fragment.files:
            yield file.base_id, below(file.base_id, data_file_path(replace(file, base_id=None))), "data file"
        deletion = fragment.deletion_file
        if deletion is not None:
            deletion_path = deletion_file_path(fragment.id, replace(deletion, base_id=None))
            yield deletion.base_id, below(deletion.base_id, deletion_path), "deletion file"
    for index in manifest.indices:
        entry = index_fields(index)
        for name, _ in entry.files:
            yield entry.base_id, below(entry.base_id, f"{INDICES_FOLDER}/{index.uuid_text}/{name}"), "index file"


def _listed(store: Store) -> Iterator[pa.RecordBatch]:
    rows: list[tuple[object, ...]] = []
    for info in (info for folder in _FOLDERS for info in store.list(folder)):
        rows.append((info.path, info.size, info.modified))
        if len(rows) == _BATCH:
            yield _batch(store.uri, rows)
            rows = []
    if rows:
        yield _batch(store.uri, rows)


def _batch(uri: str, rows: list[tuple[object, ...]]) -> pa.RecordBatch:
    uris = pa.DictionaryArray.from_arrays(pa.array([0] * len(rows), pa.int32()), pa.array([uri]))
    columns = [
        pa.array(column, field.type)
        for column, field in zip(zip(*rows, strict=True), list(_ALL_FILES)[1:], strict=True)
    ]
    return pa.RecordBatch.from_arrays([uris, *columns], schema=_ALL_FILES)
