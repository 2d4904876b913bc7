"""Write the fragment reuse index: add a compaction to it, and trim those that no index needs any more."""

from __future__ import annotations

import uuid
from array import array
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np
from pyroaring import BitMap

from lance_core.common.frozen import frozen
from lance_core.format.index.row_sets import encode_row_treemap
from lance_core.format.table.fragment_reuse import (
    DETAILS_FILE,
    FragmentDigest,
    ReuseGroup,
    ReuseVersion,
    encode_versions,
    find_fragment_reuse,
    make_fragment_reuse,
    new_fragment_ids,
    untrimmed_versions,
)
from lance_core.format.table.paths import INDICES_FOLDER
from lance_core.index.moved import load_later_moves
from lance_core.scan.fragment_reader import FragmentReader
from lance_core.table.fragment_reuse import load_fragment_reuse

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from lance_core.format.table.fragment import Fragment
    from lance_core.format.table.index_metadata import IndexMetadata
    from lance_core.format.table.operations import RewriteGroup
    from lance_core.index.moved import LaterMoves
    from lance_core.scan.open_files import OpenFiles
    from lance_core.store.base import Store
    from lance_core.table.snapshot import Snapshot

_MAX_INLINE_BYTES = 200 << 10
"""Size up to which the content stands in the manifest, as with pylance."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def reuse_version(files: OpenFiles, groups: Iterable[RewriteGroup], *, dataset_version: int) -> ReuseVersion:
    """Describe a compaction.

    Args:
        files: The dataset's open files.
        groups: The old fragments, ascending, and the new ones with their ids.
        dataset_version: Version that it is made from.
    """
    return ReuseVersion(
        dataset_version=dataset_version,
        groups=tuple(
            ReuseGroup(
                live_rows=encode_row_treemap(
                    [
                        (fragment.id, _live_rows(files, fragment))
                        for fragment in group.old_fragments
                        if fragment.num_rows
                    ]
                ),
                old_fragments=tuple(map(_digest, group.old_fragments)),
                new_fragments=tuple(map(_digest, group.new_fragments)),
            )
            for group in groups
        ),
    )


def _live_rows(files: OpenFiles, fragment: Fragment) -> bytes:
    rows = BitMap(range(fragment.physical_rows))
    rows -= BitMap(array("I", FragmentReader(files, fragment).deleted.astype(np.uint32).tobytes()))
    rows.run_optimize()
    return rows.serialize()


def _digest(fragment: Fragment) -> FragmentDigest:
    return FragmentDigest(
        id=fragment.id,
        physical_rows=fragment.physical_rows,
        num_deleted_rows=fragment.physical_rows - fragment.num_rows,
    )


def write_fragment_reuse(
    store: Store, versions: Sequence[ReuseVersion], *, dataset_version: int
) -> tuple[IndexMetadata, str | None]:
    """Make the entry of the fragment reuse index, and its file if the content is large.

    Args:
        store: The dataset.
        versions: Its content, the oldest first.
        dataset_version: Version that it is made on.

    Returns:
        The entry, and the path of the file; None if there is none.
    """
    identity, content = uuid.uuid4(), encode_versions(versions)
    path = f"{INDICES_FOLDER}/{identity}/{DETAILS_FILE}" if len(content) > _MAX_INLINE_BYTES else None
    if path is not None:
        store.put(path, content)
    entry = make_fragment_reuse(
        uuid=identity.bytes,
        dataset_version=dataset_version,
        created_at=(datetime.now(UTC) - _EPOCH) // _MILLISECOND,
        fragment_ids=new_fragment_ids(versions),
        content=content,
        is_inline=path is None,
    )
    return entry, path


def later_moves(snapshot: Snapshot) -> LaterMoves | None:
    """Return the moves of rows that indices of a version may not know of; None if there are none."""
    entry = find_fragment_reuse(snapshot.manifest.indices)
    return None if entry is None else load_later_moves(snapshot.store, entry)


@frozen(kw_only=True)
class ReuseState:
    """The fragment reuse index of a version.

    Attributes:
        entry: Its entry.
        versions: Its content, the oldest first.
    """

    entry: IndexMetadata
    versions: tuple[ReuseVersion, ...]

    @classmethod
    def of(cls, snapshot: Snapshot) -> ReuseState | None:
        """Return the state; None if there is no such index, or its layout is not known."""
        entry = find_fragment_reuse(snapshot.manifest.indices)
        versions = None if entry is None else load_fragment_reuse(snapshot.store, entry)
        return None if entry is None or versions is None else cls(entry=entry, versions=versions)

    def needs(self, index: IndexMetadata) -> bool:
        """Return whether an index may have rows from before a compaction."""
        return bool(untrimmed_versions(self.versions, [index]))

    def trimmed(self, indices: Collection[IndexMetadata]) -> tuple[ReuseVersion, ...] | None:
        """Return the versions that some indices need; None if they need all."""
        needed = untrimmed_versions(self.versions, indices)
        return needed if len(needed) < len(self.versions) else None
