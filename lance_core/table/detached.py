"""Detached versions: commits outside the history of the branch, opened by number only.

Their numbers are random with the highest bit set, so they are never the newest and never listed; nothing conflicts
with them. Clean-up keeps them and their files.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from lance_core.common.frozen import replace
from lance_core.errors import CommitContentionError, CommitOutcomeUnknownError, UnsupportedError
from lance_core.format.table.feature_flags import check_writable
from lance_core.format.table.manifest import with_transaction
from lance_core.format.table.operations import Restore, Rewrite
from lance_core.format.table.paths import DETACHED_BIT, ManifestNaming, transaction_path
from lance_core.format.table.transaction import Transaction, encode_transaction, encode_transaction_file
from lance_core.table.locations import without_bases
from lance_core.table.publish import check_files, create_manifest
from lance_core.table.rules.apply import apply, next_fragment_id, with_fragment_ids
from lance_core.table.runtime import SYSTEM_RUNTIME, Runtime
from lance_core.table.snapshot import Snapshot, load_manifest
from lance_core.table.staged_dictionaries import staged_dictionaries

if TYPE_CHECKING:
    from lance_core.store.base import Store

_ATTEMPTS = 3


def commit_detached(store: Store, transaction: Transaction, *, runtime: Runtime = SYSTEM_RUNTIME) -> Snapshot:
    """Make a detached version on top of the transaction's read version, which may be detached, too.

    Args:
        store: The branch.
        transaction: What to do.
        runtime: Clock and chance.

    Raises:
        UnsupportedError: There is no dataset yet: a detached version cannot be the first.
        VersionNotFoundError: There is no such read version.
        CommitOutcomeUnknownError: The store leaves open whether the commit landed.
        NotFoundError: A file that the transaction adds does not exist.
    """
    if not transaction.read_version:
        raise UnsupportedError("a detached commit cannot create a dataset", path=store.uri)
    base = load_manifest(store, transaction.read_version)
    check_writable(base.writer_feature_flags, path=store.uri)
    operation = transaction.operation
    restored = load_manifest(store, operation.version) if isinstance(operation, Restore) else None
    if isinstance(operation, Rewrite):
        transaction = replace(transaction, operation=with_fragment_ids(operation, next_fragment_id(base)))
    check_files(store, operation, base)
    dictionaries = staged_dictionaries(store, operation, base)
    branch_root = without_bases(store)
    path, record = transaction_path(transaction.file_name), encode_transaction(transaction)
    try:
        for _ in range(_ATTEMPTS):
            version = runtime.random_u63() | DETACHED_BIT
            manifest = apply(
                base,
                transaction,
                version=version,
                now=runtime.now(),
                restored=restored,
                dictionaries=dictionaries,
            )
            manifest = with_transaction(manifest, transaction, record)
            branch_root.put(path, encode_transaction_file(record))
            if create_manifest(branch_root, manifest, ManifestNaming.V2):
                return Snapshot(store=store, manifest=manifest)
    except CommitOutcomeUnknownError:
        raise
    except Exception:
        with suppress(Exception):
            branch_root.delete([path])
        raise
    raise CommitContentionError("cannot find a free version number for the detached commit; try again", path=store.uri)
