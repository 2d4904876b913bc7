"""Work that depends on a version: do it, commit it, and do it again when another commit came in between.

Files of work that certainly did not happen are removed, files of work whose fate is unknown stay.
"""

from __future__ import annotations

import logging
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from lance_core.common.frozen import frozen
from lance_core.errors import CommitConflictError, CommitOutcomeUnknownError, InvalidInputError
from lance_core.format.table.operations import Delete, Update
from lance_core.format.table.paths import deletion_file_path
from lance_core.format.table.transaction import COMMIT_MESSAGE_KEY, Transaction
from lance_core.table.commit import commit
from lance_core.table.runtime import SYSTEM_RUNTIME, commit_timeout_s
from lance_core.table.snapshot import open_snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import timedelta

    from lance_core.format.table.operations import Operation
    from lance_core.table.runtime import Runtime
    from lance_core.table.snapshot import Snapshot


_LOGGER = logging.getLogger("lance_core.commit")


class Work(Protocol):
    """A change that is worked out on one version; it may have a method that `finish_of` finds."""

    @property
    def sees_new_rows(self) -> bool:
        """Return whether it depends on which rows there are, not only on those it changes."""
        ...

    def prepare(self, snapshot: Snapshot) -> Operation:
        """Work it out on a version and write the files it needs; what was written before is used again or removed."""
        ...

    def forget(self) -> None:
        """Remove the files written so far."""
        ...


def finish_of(work: object) -> Callable[[], None] | None:
    """Return the method ``finish`` of a work whose last files may be on their way when it was prepared, if it has one.

    It waits until all files are there, and raises what one failed with.
    """
    return getattr(work, "finish", None)


@frozen(kw_only=True)
class CommitOptions:
    """Options of a commit.

    Attributes:
        conflict_retries: How often to work it out anew when another commit touched what it relies on; None for as
            often as the time allows.
        retry_timeout_s: Seconds after which it is not worked out anew; None for `commit_timeout_s`.
        properties: Transaction properties.
        message: Commit message.
    """

    conflict_retries: int | None = None
    retry_timeout_s: float | None = None
    properties: Mapping[str, str] | None = None
    message: str | None = None


def commit_options(
    conflict_retries: int | None = None,
    retry_timeout: timedelta | None = None,
    *,
    properties: Mapping[str, str] | None = None,
    message: str | None = None,
) -> CommitOptions:
    """Return the options as users give them.

    Raises:
        InvalidInputError: A number below 0.
    """
    if conflict_retries is not None and conflict_retries < 0:
        raise InvalidInputError(f"'conflict_retries' must be at least 0, not {conflict_retries}")
    return CommitOptions(
        conflict_retries=conflict_retries,
        retry_timeout_s=None if retry_timeout is None else retry_timeout.total_seconds(),
        properties=properties,
        message=message,
    )


def new_transaction(
    read_version: int,
    operation: Operation,
    *,
    properties: Mapping[str, str] | None,
    message: str | None,
) -> Transaction:
    """Return a transaction with an identity of its own."""
    text = {COMMIT_MESSAGE_KEY: message} if message is not None else {}
    return Transaction(
        read_version=read_version,
        uuid=str(uuid.uuid4()),
        operation=operation,
        transaction_properties={**(properties or {}), **text},
    )


def commit_operation(
    snapshot: Snapshot,
    operation: Operation,
    properties: Mapping[str, str] | None = None,
    *,
    files_since_s: float | None = None,
) -> Snapshot:
    """Commit an operation that was made from a version; returns the version that it made.

    Args:
        snapshot: The version.
        operation: The operation.
        properties: Transaction properties.
        files_since_s: When the first of its files was begun; see `lance_core.table.commit.commit`.
    """
    transaction = new_transaction(snapshot.version, operation, properties=properties, message=None)
    return commit(snapshot.store, transaction, read=snapshot, has_new_uuid=True, files_since_s=files_since_s)


def commit_work(
    snapshot: Snapshot,
    work: Work,
    options: CommitOptions,
    *,
    writes_files: bool = False,
    runtime: Runtime = SYSTEM_RUNTIME,
) -> Snapshot:
    """Do work on a version and commit it; do it again on the newest version as long as other commits get in the way.

    Args:
        snapshot: Version to begin with.
        work: What to do; it keeps what was found out on the version that was committed.
        options: How to commit.
        writes_files: The work itself writes all files that it adds: none was staged before, or by another process.
        runtime: Clock, waiting and chance.

    Returns:
        The version made.

    Raises:
        CommitConflictError: Other commits got in the way each time, or one that cannot be reconciled did.
        CommitOutcomeUnknownError: The store leaves open whether the commit landed; the files stay.
    """
    timeout_s = commit_timeout_s() if options.retry_timeout_s is None else options.retry_timeout_s
    deadline_s = runtime.monotonic_s() + timeout_s
    attempt, uri = 0, snapshot.store.uri
    began_s = runtime.monotonic_s()
    while True:
        transaction = _prepared(snapshot, work, options)
        try:
            done = commit(
                snapshot.store,
                transaction,
                read=snapshot,
                sees_new_rows=work.sees_new_rows,
                has_new_uuid=True,
                finish_files=finish_of(work),
                files_since_s=began_s if writes_files else None,
                runtime=runtime,
            )
        except CommitOutcomeUnknownError:
            raise
        except CommitConflictError as error:
            is_over = attempt == options.conflict_retries or runtime.monotonic_s() > deadline_s
            if is_over or not error.is_retryable:
                work.forget()
                raise
        except Exception:
            work.forget()
            raise
        else:
            _remove_merged_deletions(snapshot, transaction.operation, done)
            return done
        attempt += 1
        _LOGGER.info("working out the change of %s again on the newest version, repetition %d", uri, attempt)
        snapshot = _newest(snapshot, work)


def _remove_merged_deletions(read: Snapshot, operation: Operation, done: Snapshot) -> None:
    """Remove our deletion files in whose place the commit has put others, merged with those of other commits."""
    if done.version == read.version + 1 or not isinstance(operation, Delete | Update):
        return
    ours = {fragment.id: fragment.deletion_file for fragment in operation.updated_fragments}
    for fragment in (*read.manifest.fragments.select(ours), *done.manifest.fragments.select(ours)):
        if ours.get(fragment.id) == fragment.deletion_file:
            ours.pop(fragment.id, None)
    with suppress(Exception):
        read.store.delete(
            [deletion_file_path(fragment_id, file) for fragment_id, file in ours.items() if file is not None]
        )


def _prepared(snapshot: Snapshot, work: Work, options: CommitOptions) -> Transaction:
    try:
        operation = work.prepare(snapshot)
    except BaseException:
        work.forget()
        raise
    return new_transaction(snapshot.version, operation, properties=options.properties, message=options.message)


def _newest(snapshot: Snapshot, work: Work) -> Snapshot:
    try:
        return open_snapshot(snapshot.store)
    except BaseException:
        work.forget()
        raise
