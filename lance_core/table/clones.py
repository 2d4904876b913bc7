"""Copies of a version as the first version of a branch or of another dataset, with or without its files."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

from lance_core.common.frozen import replace
from lance_core.errors import (
    CommitOutcomeUnknownError,
    CorruptDataError,
    DatasetAlreadyExistsError,
    InvalidInputError,
    UnsupportedError,
    VersionNotFoundError,
)
from lance_core.format.table.base_path import BasePath
from lance_core.format.table.feature_flags import Feature, check_writable
from lance_core.format.table.fragment_list import FragmentList
from lance_core.format.table.index_metadata import with_base_id
from lance_core.format.table.manifest import index_section_of, with_transaction
from lance_core.format.table.operations import Clone
from lance_core.format.table.paths import (
    BASE_PREFIX,
    DETACHED_BIT,
    INDICES_FOLDER,
    ManifestNaming,
    base_prefix,
    data_file_path,
    deletion_file_path,
    manifest_path,
    split_base_path,
    transaction_path,
)
from lance_core.format.table.transaction import Transaction, encode_transaction, encode_transaction_file
from lance_core.table.locations import branch_of, without_bases
from lance_core.table.publish import create_manifest
from lance_core.table.refs import manifest_size
from lance_core.table.runtime import SYSTEM_RUNTIME, Runtime
from lance_core.table.snapshot import Snapshot, find_newest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from lance_core.format.table.fragment import Fragment
    from lance_core.format.table.manifest import Manifest
    from lance_core.store.base import Store

_COPY_SIZE = 8 << 20
_COPY_THREADS = 8
_BLOB_EXTENSION = "lance.blob.v2"


def clone_manifest(source: Snapshot, *, branch: str | None, uuid: str, now: datetime) -> tuple[Manifest, bytes]:
    """Return the first version of a branch (None: of another dataset) that refers to the files of its source.

    Returns:
        The manifest, whose number is that of the source, and the content of its transaction file.

    Raises:
        UnsupportedError: The source needs something that lance_core cannot write.
    """
    manifest = source.manifest
    if source.version & DETACHED_BIT:
        raise InvalidInputError(
            "cannot create a branch or clone from a detached version. Restore it first", path=source.store.uri
        )
    branch_root, parent = without_bases(source.store), branch_of(source.store)[1]
    check_writable(manifest.writer_feature_flags, path=branch_root.uri)
    used = {base.id for base in manifest.base_paths}
    base_id = next(number for number in range(len(used) + 1) if number not in used)
    base = BasePath(id=base_id, path=branch_root.uri, name=parent if branch is not None else None, is_dataset_root=True)
    flags = Feature.BASE_PATHS
    cloned = replace(
        manifest,
        fragments=FragmentList.of(_based(fragment, base_id) for fragment in manifest.fragments),
        index_section=index_section_of(
            tuple(with_base_id(index, base_id) if index.base_id is None else index for index in manifest.indices)
        ),
        base_paths=(*manifest.base_paths, base),
        branch=branch,
        timestamp=now,
        tag="",
        reader_feature_flags=int(manifest.reader_feature_flags | flags),
        writer_feature_flags=int(manifest.writer_feature_flags | flags),
    )
    return _with_clone(cloned, source, branch=branch, uuid=uuid, is_shallow=True)


def publish_clone(branch_root: Store, cloned: tuple[Manifest, bytes]) -> Snapshot:
    """Write the first version of a branch.

    Raises:
        DatasetAlreadyExistsError: There is one.
        CommitOutcomeUnknownError: The store leaves open whether it was written.
    """
    manifest, record = cloned
    branch_root = without_bases(branch_root)
    if find_newest(branch_root).newest is not None:
        raise DatasetAlreadyExistsError("the target exists already. Choose another address", path=branch_root.uri)
    written_paths = [transaction_path(manifest.transaction_file)]
    branch_root.put(written_paths[0], record)
    if not create_manifest(branch_root, manifest, ManifestNaming.V2):
        branch_root.delete(written_paths)
        raise DatasetAlreadyExistsError("another writer created a dataset here at the same time", path=branch_root.uri)
    return Snapshot(store=branch_root, manifest=manifest)


def shallow_clone(source: Snapshot, target: Store, *, uuid: str, runtime: Runtime = SYSTEM_RUNTIME) -> Snapshot:
    """Make a dataset that refers to the files of a version elsewhere; the version must be kept as long as it is used.

    Raises:
        DatasetAlreadyExistsError: There is a dataset at the target.
        VersionNotFoundError: The version was cleaned up meanwhile.
    """
    cloned = clone_manifest(source, branch=None, uuid=uuid, now=runtime.now())
    snapshot = publish_clone(target, cloned)
    try:
        manifest_size(source.store, source.version)
    except VersionNotFoundError:
        take_back(target, snapshot.manifest)
        raise
    return snapshot


def deep_clone(source: Snapshot, target: Store, *, uuid: str, runtime: Runtime = SYSTEM_RUNTIME) -> Snapshot:
    """Copy a version with all its files into a dataset of its own.

    Raises:
        DatasetAlreadyExistsError: There is a dataset at the target.
        CorruptDataError: Different files of one name.
        NotFoundError: A file is missing; what was copied is removed again.
    """
    manifest = source.manifest
    check_writable(manifest.writer_feature_flags, path=source.store.uri)
    _check_copyable(manifest, source.store)
    target = without_bases(target)
    if find_newest(target).newest is not None:
        raise DatasetAlreadyExistsError("the target exists already. Choose another address", path=target.uri)
    copied: list[str] = []
    try:
        _copy_all(source, target, copied)
        flags = int(Feature.BASE_PATHS)
        own_manifest = replace(
            manifest,
            fragments=FragmentList.of(_local_copy(fragment) for fragment in manifest.fragments),
            index_section=index_section_of(tuple(with_base_id(index, None) for index in manifest.indices)),
            base_paths=(),
            branch=None,
            timestamp=runtime.now(),
            tag="",
            reader_feature_flags=manifest.reader_feature_flags & ~flags,
            writer_feature_flags=manifest.writer_feature_flags & ~flags,
        )
        return publish_clone(target, _with_clone(own_manifest, source, branch=None, uuid=uuid, is_shallow=False))
    except CommitOutcomeUnknownError:
        raise
    except BaseException:
        with suppress(Exception):
            target.delete(copied)
        raise


def _with_clone(
    manifest: Manifest, source: Snapshot, *, branch: str | None, uuid: str, is_shallow: bool
) -> tuple[Manifest, bytes]:
    operation = Clone(
        is_shallow=is_shallow,
        ref_name=branch_of(source.store)[1],
        ref_version=source.version,
        ref_path=without_bases(source.store).uri,
        branch_name=branch,
    )
    transaction = Transaction(read_version=source.version, uuid=uuid, operation=operation)
    record = encode_transaction(transaction)
    return with_transaction(manifest, transaction, record), encode_transaction_file(record)


def _based(fragment: Fragment, base_id: int) -> Fragment:
    """Return the fragment as another place sees it."""
    deletion_file = fragment.deletion_file
    if deletion_file is not None and deletion_file.base_id is None:
        deletion_file = replace(deletion_file, base_id=base_id)
    files = tuple(replace(file, base_id=base_id) if file.base_id is None else file for file in fragment.files)
    return replace(fragment, files=files, deletion_file=deletion_file)


def _local_copy(fragment: Fragment) -> Fragment:
    deletion_file = fragment.deletion_file
    return replace(
        fragment,
        files=tuple(replace(file, base_id=None) for file in fragment.files),
        deletion_file=None if deletion_file is None else replace(deletion_file, base_id=None),
    )


def _check_copyable(manifest: Manifest, store: Store) -> None:
    if manifest.reader_feature_flags & Feature.MANAGED_BLOBS:
        raise UnsupportedError("cannot copy managed blobs", path=store.uri)


def _copy_all(source: Snapshot, target: Store, copied: list[str]) -> None:
    """Copy files, several at a time; ``copied`` grows before each file is begun."""
    pairs: dict[str, str] = {}
    for path in _needed(source):
        target_path = split_base_path(path)[1] if path.startswith(BASE_PREFIX) else path
        if pairs.setdefault(target_path, path) != path:
            raise CorruptDataError(
                f"two base paths contain a file {target_path!r}, which cannot be copied into one dataset",
                path=target.uri,
            )
    with ThreadPoolExecutor(_COPY_THREADS) as pool:

        def copy(relative: str) -> None:
            copied.append(relative)
            _copy(source.store, pairs[relative], target, relative)

        for done in [pool.submit(copy, path_below) for path_below in pairs]:
            done.result()


def _needed(source: Snapshot) -> Iterator[str]:
    """Yield all files of a version."""
    manifest = source.manifest
    has_blobs = any(field.extension_name == _BLOB_EXTENSION for field in manifest.schema.walk())
    for fragment in manifest.fragments:
        for file in fragment.files:
            yield data_file_path(file)
            if has_blobs:
                yield from _below(
                    source.store, file.base_id, data_file_path(replace(file, base_id=None))[: -len(".lance")]
                )
        if fragment.deletion_file is not None:
            yield deletion_file_path(fragment.id, fragment.deletion_file)
    for index in manifest.indices:
        yield from _below(source.store, index.base_id, f"{INDICES_FOLDER}/{index.uuid_text}")


def _below(store: Store, base_id: int | None, folder: str) -> Iterator[str]:
    """Paths of all files below a folder of the dataset or of one of its base paths."""
    return (info.path for info in store.list(f"{base_prefix(base_id)}{folder}"))


def _copy(source: Store, path: str, target: Store, relative: str) -> None:
    reader = source.reader(path)
    writer = target.writer(relative)
    try:
        for start in range(0, reader.size, _COPY_SIZE):
            for buffer in reader.read_ranges([(start, min(start + _COPY_SIZE, reader.size))]):
                writer.write(buffer)
        writer.commit()
    except BaseException:
        writer.abort()
        raise
    finally:
        reader.close()


def take_back(target: Store, manifest: Manifest) -> None:
    """Remove the first version of a branch again."""
    target.delete([manifest_path(manifest.version, ManifestNaming.V2), transaction_path(manifest.transaction_file)])
