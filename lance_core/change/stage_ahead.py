"""Write data files for the newest version while that is still looked for: on object stores, each takes a round."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from typing import TYPE_CHECKING

from lance_core.change.stage import remove_staged
from lance_core.common.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable

    from lance_core.change.targets import TargetStore
    from lance_core.format.schema import Schema
    from lance_core.format.table.fragment import Fragment
    from lance_core.table.snapshot import Snapshot


@frozen(kw_only=True)
class Staged:
    """Data files that no version knows yet.

    Attributes:
        base: The version that they are for; None if there is none.
        target: Where they are.
        fragments: The files, as `lance_core.change.stage.stage_data` returned them; likewise the next one.
        table: Schema of the table.
        file_version: Their version.
    """

    base: Snapshot | None
    target: TargetStore
    fragments: tuple[Fragment, ...]
    table: Schema
    file_version: str


def staged_ahead(
    seen: Snapshot, find: Callable[[], Snapshot | None], stage: Callable[[Snapshot | None], Staged]
) -> Staged:
    """Stage files for a version that is open, and look for the newest meanwhile; stage them again if it differs.

    Args:
        seen: The version that is open.
        find: Finds the newest version.
        stage: Stages files for a version; may be called twice.

    Returns:
        Files for the newest version.
    """
    with ThreadPoolExecutor(1) as pool:
        finding = pool.submit(copy_context().run, find)
        try:
            staged = stage(seen)
        except Exception:
            newest = finding.result()
            if _is_alike(seen, newest):
                raise
            return stage(newest)
        try:
            newest = finding.result()
        except BaseException:
            remove_staged(staged.target, staged.fragments)
            raise
    if _is_alike(seen, newest):
        return replace(staged, base=newest)
    remove_staged(staged.target, staged.fragments)
    return stage(newest)


def _is_alike(seen: Snapshot, newest: Snapshot | None) -> bool:
    """Return whether files that fit one version fit the other."""
    return newest is not None and all(
        getattr(seen.manifest, name) == getattr(newest.manifest, name)
        for name in ("schema", "new_file_version", "base_paths", "branch")
    )
