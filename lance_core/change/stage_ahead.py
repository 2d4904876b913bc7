"""Write data files for the newest version while that is still looked for: on object stores, each takes a round."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TYPE_CHECKING

from lance_core.change.stage import remove_staged
from lance_core.common.frozen import frozen, replace
from lance_core.store.tasks import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from lance_core.change.completion import Completion
    from lance_core.change.targets import TargetStore
    from lance_core.format.schema import Schema
    from lance_core.format.table.fragment import Fragment
    from lance_core.table.snapshot import Snapshot


class OutdatedError(Exception):
    """Files were staged for a version that is not the newest: `Staged.moved` makes them fit that."""


@frozen
class Staged:
    """Data files that no version knows yet.

    Attributes:
        base: The version that they are for; None if there is none.
        target: Where they are.
        fragments: The files, as `lance_core.change.stage.stage_data` returned them; likewise the next one.
        table: Schema of the table.
        file_version: Their version.
        completion: Waits for those that are not there yet.
        finding: Finds the newest version, if nobody knows yet whether it is the base.
    """

    base: Snapshot | None
    target: TargetStore
    fragments: tuple[Fragment, ...]
    table: Schema
    file_version: str
    completion: Completion
    finding: Future[Snapshot | None] | None = None

    def finish(self) -> None:
        """Wait until the files are there and are known to be for the newest version.

        Raises:
            OutdatedError: They are for another version.
        """
        self.completion.wait()
        if self.finding is not None and not _is_same(self.base, wait_for(self.finding)):
            raise OutdatedError

    def moved(self, stage: Callable[[Snapshot | None], Staged]) -> Staged:
        """Return files for the newest version: these if they fit it, else others.

        Args:
            stage: Stages files for a version.
        """
        newest = None if self.finding is None else self.finding.result()
        if self.base is not None and _is_alike(self.base, newest):
            return replace(self, base=newest, finding=None)
        self.remove()
        return stage(newest)

    def remove(self) -> None:
        """Remove the files; nobody may know them."""
        self.completion.close()
        remove_staged(self.target, self.fragments)


def staged_ahead(
    seen: Snapshot, find: Callable[[], Snapshot | None], stage: Callable[[Snapshot | None], Staged]
) -> Staged:
    """Stage files for a version that is open, and look meanwhile whether it is the newest; see `Staged.finish`.

    Args:
        seen: The version that is open.
        find: Finds the newest version.
        stage: Stages files for a version; may be called twice.
    """
    pool = ThreadPoolExecutor(1)
    finding = pool.submit(copy_context().run, find)
    pool.shutdown(wait=False)
    try:
        return replace(stage(seen), finding=finding)
    except Exception:
        newest = finding.result()
        if _is_alike(seen, newest):
            raise
        return stage(newest)


def _is_same(seen: Snapshot | None, newest: Snapshot | None) -> bool:
    """Return whether an open version is the newest one, and not another table's at the same place."""
    if seen is None or newest is None or seen.version != newest.version:
        return False
    ours, theirs = seen.manifest.transaction_file, newest.manifest.transaction_file
    return seen.manifest is newest.manifest or (ours == theirs and bool(ours))


def _is_alike(seen: Snapshot, newest: Snapshot | None) -> bool:
    """Return whether files that fit one version fit the other."""
    return newest is not None and all(
        getattr(seen.manifest, name) == getattr(newest.manifest, name)
        for name in ("schema", "new_file_version", "base_paths", "branch")
    )
