"""Complete manifests that leave out what other files tell.

pylance before 0.8 did not record how many rows fragments have or have lost; until 0.8.14, which was the first to record
who wrote a manifest, the counts may be wrong. pylance 14.0.2 takes them from the files, too. The specification also
allows ids and versions of rows in files of their own. Compactions of pylance may leave the coverage of indices to the
fragment reuse index. Nothing behind this module knows of that: a completed manifest holds the counts, the sequences and
the coverage, and so does the next version that is built on it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from lance_core.common.frozen import replace
from lance_core.common.limits import check_limit
from lance_core.errors import CorruptDataError, NotFoundError
from lance_core.format.table.fragment import ExternalFile
from lance_core.format.table.paths import data_file_path, external_file_path
from lance_core.table.fragment_reuse import with_current_coverage
from lance_core.table.locations import with_bases
from lance_core.table.read_ahead import each
from lance_core.table.rebase import load_deletions

if TYPE_CHECKING:
    from lance_core.format.table.fragment import Fragment, LineageSequence
    from lance_core.format.table.manifest import Manifest
    from lance_core.store.base import Store


def completed(store: Store, manifest: Manifest) -> Manifest:
    """Return the manifest with all row counts, row ids, row versions and index coverage; itself if it has them.

    Args:
        store: The branch.
        manifest: As it was decoded.

    Raises:
        CorruptDataError: A file that tells what the manifest leaves out is missing or damaged.
    """
    manifest = with_current_coverage(store, manifest)
    fragments = manifest.fragments
    incomplete = fragments.incomplete() if manifest.has_reliable_counts else np.arange(len(fragments))
    if not len(incomplete):
        return manifest
    positions = incomplete.tolist()
    files = with_bases(store, manifest)
    lacking = (fragments[position] for position in positions)
    works = (partial(_completed, files, fragment, recount=not manifest.has_reliable_counts) for fragment in lacking)
    changed = dict(zip(positions, each(files, works), strict=True))
    return replace(manifest, fragments=fragments.with_changed(changed), has_reliable_counts=True)


def _completed(store: Store, fragment: Fragment, *, recount: bool) -> Fragment:
    try:
        if recount or not fragment.physical_rows:
            fragment = replace(fragment, physical_rows=_count_rows(store, fragment))
        deletion_file = fragment.deletion_file
        if deletion_file is not None and (recount or not deletion_file.num_deleted_rows):
            unknown = replace(fragment, deletion_file=replace(deletion_file, num_deleted_rows=0))
            counted = replace(deletion_file, num_deleted_rows=len(load_deletions(store, unknown)))
            fragment = replace(fragment, deletion_file=counted)
        return replace(
            fragment,
            row_id_sequence=_inline(store, fragment.row_id_sequence),
            last_updated_at_version_sequence=_inline(store, fragment.last_updated_at_version_sequence),
            created_at_version_sequence=_inline(store, fragment.created_at_version_sequence),
        )
    except NotFoundError as error:
        raise CorruptDataError(
            f"fragment {fragment.id}: a file is missing from which its rows must be counted or their ids read",
            path=error.path,
        ) from error


def _count_rows(store: Store, fragment: Fragment) -> int:
    """Return rows in a fragment, by its first data file; the others are held against it when they are opened."""
    if not fragment.files:
        raise CorruptDataError(f"fragment {fragment.id} has no data files, and the manifest does not record its rows")
    path = data_file_path(fragment.files[0])
    source = store.reader(path)
    try:
        from lance_core.file.read.reader import DataFileReader  # noqa: PLC0415 whoever opens no file needs no decoder

        return DataFileReader(source, path=f"{store.uri}/{path}").num_rows
    finally:
        source.close()


def _inline(store: Store, sequence: LineageSequence | None) -> LineageSequence | None:
    """Return the sequence; its bytes if they are in a file of their own."""
    if not isinstance(sequence, ExternalFile):
        return sequence
    path = external_file_path(sequence)
    check_limit("max_manifest_bytes", sequence.size, "bytes of row ids or versions", path=path)
    source = store.reader(path)
    try:
        end = sequence.offset + sequence.size
        if end > source.size:
            text = f"row ids or versions end at byte {end} of a file of {source.size} bytes"
            raise CorruptDataError(text, path=path)
        (data,) = source.read_ranges([(sequence.offset, end)])
        return data.to_pybytes()
    finally:
        source.close()
