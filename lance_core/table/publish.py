"""Steps that every new version takes, whichever line it is on: look at its files, create its manifest, be sure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_core.errors import (
    CommitOutcomeUnknownError,
    CorruptDataError,
    InvalidInputError,
    NotFoundError,
    UnsafeStoreError,
    VersionNotFoundError,
)
from lance_core.format.table.manifest import encode_manifest_pieces, remember_manifest
from lance_core.format.table.operations import Append, DataReplacement, Operation, Overwrite, Rewrite
from lance_core.format.table.paths import (
    BASE_PREFIX,
    ManifestNaming,
    data_file_path,
    deletion_file_path,
    manifest_path,
    split_base_path,
)
from lance_core.table.locations import at_places, create, lock_of, object_sizes, with_bases
from lance_core.table.rules.ancestry import descends
from lance_core.table.rules.apply_settings import add_bases
from lance_core.table.snapshot import load_manifest, load_transaction, read_transaction

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lance_core.format.table.base_path import BasePath
    from lance_core.format.table.fragment import DataFile, Fragment
    from lance_core.format.table.manifest import Manifest
    from lance_core.store.base import Store


def create_manifest(store: Store, manifest: Manifest, naming: ManifestNaming) -> bool:
    """Create the manifest file of a version: won, lost, or find out; under the lock of the caller, if there is one.

    Args:
        store: The branch.
        manifest: The version, with its transaction.
        naming: How manifest files are named.

    Returns:
        False if another writer was faster.

    Raises:
        CommitOutcomeUnknownError: The store leaves open whether the file was created.
        UnsafeStoreError: The store cannot let exactly one writer win.
    """
    lock = lock_of(store)
    if lock is None:
        return _create_manifest(store, manifest, naming)
    is_ours: bool | None = None
    try:
        with lock(manifest.version):
            is_ours = _create_manifest(store, manifest, naming)
    except Exception as error:
        if is_ours is None:
            raise
        raise outcome_unknown(store, manifest.version, _uuid_of(manifest)) from error  # the lock failed behind it
    return bool(is_ours)


def _create_manifest(store: Store, manifest: Manifest, naming: ManifestNaming) -> bool:
    try:
        pieces = encode_manifest_pieces(manifest)
        is_ours = create(store, manifest_path(manifest.version, naming), pieces)
    except (UnsafeStoreError, CommitOutcomeUnknownError):
        raise
    except Exception as error:  # noqa: BLE001 whatever it was, find out what happened
        uuid = _uuid_of(manifest)
        try:
            committed = read_transaction(store, manifest.version)
        except VersionNotFoundError:
            if isinstance(error, TimeoutError | ConnectionError):
                raise outcome_unknown(store, manifest.version, uuid) from error  # the request may still be on its way
            raise error from None
        except Exception:  # noqa: BLE001 likewise
            raise outcome_unknown(store, manifest.version, uuid) from error
        return committed is not None and committed.uuid == uuid
    if is_ours:
        remember_manifest(manifest, pieces)
    return is_ours


def outcome_unknown(store: Store, version: int, uuid: str) -> CommitOutcomeUnknownError:
    """Return the error that says that a commit may have landed or not."""
    return CommitOutcomeUnknownError(
        f"the store failed while version {version} was written, and whether it was written is unknown; nothing "
        f"was deleted. Committing the same transaction (uuid {uuid}) again is safe",
        path=store.uri,
    )


def _uuid_of(manifest: Manifest) -> str:
    """Return the uuid of the transaction; if that is too large for the manifest, the name of its file has it."""
    transaction = manifest.inline_transaction()
    if transaction is not None:
        return transaction.uuid
    return manifest.transaction_file.partition("-")[2].removesuffix(".txn")


def check_files(store: Store, operation: Operation, base: Manifest) -> None:
    """Make sure that the files an operation brings exist: a clean-up may have taken them for garbage.

    Args:
        store: The branch.
        operation: What is about to be committed.
        base: The version it builds on.

    Raises:
        InvalidInputError: A file lies below a base path that the table does not have.
        NotFoundError: A file is not there.
        CorruptDataError: A file has another size than the operation says.
    """
    files = list(_new_files(operation, base))
    if not files:
        return
    base_ids = {base_path.id for base_path in _base_paths(operation, base)}
    for path, _ in files:
        base_id, inner = split_base_path(path) if path.startswith(BASE_PREFIX) else (None, path)
        if base_id is not None and base_id not in base_ids:
            there = ", ".join(map(str, sorted(base_ids))) or "none"
            raise InvalidInputError(f"{inner} refers to base path {base_id}, but the table's base paths are: {there}")
    sizes = object_sizes(store_of_new_files(store, operation, base), [path for path, _ in files])
    for (path, size), actual in zip(files, sizes, strict=True):
        if size and actual != size:
            raise CorruptDataError(f"the transaction says {size} bytes, but the file has {actual}", path=path)


def store_of_new_files(store: Store, operation: Operation, base: Manifest) -> Store:
    """Return the store that finds the files an operation brings; arguments as for `check_files`."""
    return at_places(store, _base_paths(operation, base), base.branch)


def _base_paths(operation: Operation, base: Manifest) -> tuple[BasePath, ...]:
    """Return the base paths that the operation's files may name."""
    if isinstance(operation, Overwrite) and operation.initial_bases:
        return add_bases(base.base_paths, operation.initial_bases)
    return base.base_paths


def is_on_branch(store: Store, manifest: Manifest, numbers: tuple[int, ...]) -> bool | None:
    """Return whether all later versions up to the newest build on each other, and the first of them on this one.

    Args:
        store: The branch.
        manifest: The version.
        numbers: Versions that there are.

    Returns:
        None if that cannot be told.
    """
    ours = load_transaction(store, manifest)
    for version in numbers:
        if version <= manifest.version:
            continue
        child = load_manifest(store, version)
        theirs = load_transaction(store, child)
        if ours is None or theirs is None:
            return None
        verdict = descends(child, theirs.operation, ours=manifest, our_operation=ours.operation)
        if not verdict:
            return verdict
        manifest, ours = child, theirs
    return True


def is_whole(store: Store, manifest: Manifest, uuid: str) -> bool:
    """Return whether all files of a version are there that stands alone: one that lacks some is no part of the branch.

    Later versions say what this one says, but not who said it. So nothing is lost by doing it again. If it is gone
    since it was made, a clean-up took it and then its files, as it takes any old version; somebody else, who still
    believed the number to be free, may have taken that since.

    Args:
        store: The branch.
        manifest: The version, which was there.
        uuid: The transaction that made it.
    """
    paths = {data_file_path(file) for fragment in manifest.fragments for file in fragment.files}
    try:
        object_sizes(with_bases(store, manifest), sorted(paths))
    except NotFoundError:
        try:
            there = read_transaction(store, manifest.version)
        except VersionNotFoundError:
            return True
        return there is not None and there.uuid != uuid
    return True


def brought_fragments(operation: Operation) -> Iterator[Fragment]:
    """Yield all fragments that an operation adds or changes."""
    for name in ("fragments", "updated_fragments", "new_fragments"):
        yield from getattr(operation, name, ())
    if isinstance(operation, Rewrite):
        for group in operation.groups:
            yield from group.new_fragments


def new_data_files(operation: Operation, base: Manifest) -> Iterator[DataFile]:
    """Return the data files that an operation adds to a version."""
    if isinstance(operation, DataReplacement):
        yield from (file for _, file in operation.replacements)
    for fragment, before in _brought(operation, base):
        yield from _added(fragment, before)


def _added(fragment: Fragment, before: Fragment | None) -> Iterator[DataFile]:
    return (file for file in fragment.files if before is None or file not in before.files)


def _new_files(operation: Operation, base: Manifest) -> Iterator[tuple[str, int]]:
    """Path and size (0 if not recorded) of each file that an operation adds."""
    if isinstance(operation, DataReplacement):
        yield from ((data_file_path(file), file.file_size_bytes) for _, file in operation.replacements)
    for fragment, before in _brought(operation, base):
        yield from ((data_file_path(file), file.file_size_bytes) for file in _added(fragment, before))
        deletion_file = fragment.deletion_file
        if deletion_file is not None and (before is None or deletion_file != before.deletion_file):
            yield deletion_file_path(fragment.id, deletion_file), 0


def _brought(operation: Operation, base: Manifest) -> Iterator[tuple[Fragment, Fragment | None]]:
    """Yield the fragments that an operation adds or changes, and what they were."""
    brought = list(brought_fragments(operation))
    existing: dict[int, Fragment] = {}
    if not isinstance(operation, Append | Overwrite | Rewrite):
        existing = {fragment.id: fragment for fragment in base.fragments.select([fragment.id for fragment in brought])}
    yield from ((fragment, existing.get(fragment.id)) for fragment in brought)
