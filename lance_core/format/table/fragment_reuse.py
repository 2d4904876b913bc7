"""The fragment reuse index: where rows moved in compactions that left the indices for later.

A compaction with deferred remap replaces fragments and leaves the files of indices as they are. It adds a version to
this system index: for each group of fragments the addresses of the live rows before, and the fragments before and
after. The rows of the new fragments are the live rows in ascending order of their old addresses. Readers take the row
addresses in every index that holds addresses through all versions, one after the other; addresses of fragments that no
version replaced stay. A version is dropped ("trimmed") once every index was written after it.

Source: message ``FragmentReuseIndexDetails`` of package ``lance.table``, and what pylance 14.0.2 writes. Histories of
index version 1 and later ("tagged", feature flag 1024) are not decoded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from lance_core._proto import table_pb2
from lance_core.common.frozen import frozen
from lance_core.errors import CorruptDataError
from lance_core.format.table.fragment import ExternalFile
from lance_core.format.table.index_metadata import IndexFields, index_fields, make_index, with_changed_coverage

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lance_core.format.table.index_metadata import IndexMetadata

NAME = "__lance_frag_reuse"
"""Name of its entry among the indices of a version."""

DETAILS_FILE = "details.binpb"
"""Name of the file with its content where that is too large for the manifest."""

_TYPE_URL = "/lance.table.FragmentReuseIndexDetails"
_VERSION = 0


@frozen(kw_only=True)
class FragmentDigest:
    """A fragment before or after a compaction.

    Attributes:
        id: Its id.
        physical_rows: Rows, deleted ones included.
        num_deleted_rows: Deleted rows.
    """

    id: int
    physical_rows: int
    num_deleted_rows: int = 0


@frozen(kw_only=True)
class ReuseGroup:
    """Fragments that were rewritten together.

    Attributes:
        live_rows: Roaring treemap of the addresses of the rows that were kept.
        old_fragments: The fragments before.
        new_fragments: Those after.
    """

    live_rows: bytes
    old_fragments: tuple[FragmentDigest, ...]
    new_fragments: tuple[FragmentDigest, ...]


@frozen(kw_only=True)
class ReuseVersion:
    """One compaction.

    Attributes:
        dataset_version: Version that it was made from; indices of later versions do not need it.
        groups: What became what.
    """

    dataset_version: int
    groups: tuple[ReuseGroup, ...]


def find_fragment_reuse(indices: Iterable[IndexMetadata]) -> IndexMetadata | None:
    """Return the entry of the fragment reuse index; None if there is none."""
    return next((index for index in indices if index.name == NAME), None)


def decode_fragment_reuse(index: IndexMetadata) -> tuple[ReuseVersion, ...] | ExternalFile | None:
    """Decode the entry.

    Returns:
        Its versions, the oldest first, or the file in the index's folder that holds them; None if the entry has a
        layout that is not known.

    Raises:
        CorruptDataError: It is damaged.
    """
    fields = index_fields(index)
    if fields.details is None or fields.details[0] != _TYPE_URL or fields.index_version != _VERSION:
        return None
    try:
        details = table_pb2.FragmentReuseIndexDetails.FromString(fields.details[1])
    except DecodeError as error:
        raise CorruptDataError(f"the fragment reuse index cannot be decoded: {error}") from error
    if details.HasField("external"):
        file = details.external
        return ExternalFile(path=file.path, offset=file.offset, size=file.size)
    return _versions(details.inline)


def decode_versions(data: bytes, *, path: str | None = None) -> tuple[ReuseVersion, ...]:
    """Decode the content of a file with versions.

    Raises:
        CorruptDataError: It is damaged.
    """
    try:
        return _versions(table_pb2.FragmentReuseIndexDetails.InlineContent.FromString(data))
    except DecodeError as error:
        raise CorruptDataError(f"the fragment reuse index cannot be decoded: {error}", path=path) from error


def encode_versions(versions: Sequence[ReuseVersion]) -> bytes:
    """Encode versions, as they are kept in the entry or in a file."""
    details = table_pb2.FragmentReuseIndexDetails
    return details.InlineContent(
        versions=[
            details.Version(
                dataset_version=version.dataset_version,
                groups=[
                    details.Group(
                        changed_row_addrs=group.live_rows,
                        old_fragments=map(_digest, group.old_fragments),
                        new_fragments=map(_digest, group.new_fragments),
                    )
                    for group in version.groups
                ],
            )
            for version in versions
        ]
    ).SerializeToString()


def make_fragment_reuse(
    *, uuid: bytes, dataset_version: int, created_at: int, fragment_ids: Iterable[int], content: bytes, is_inline: bool
) -> IndexMetadata:
    """Make the entry.

    Args:
        uuid: 16 bytes.
        dataset_version: Version that it is made on.
        created_at: Unix milliseconds.
        fragment_ids: Fragments after the newest compaction.
        content: Its encoded versions.
        is_inline: They stand in the entry; else in the file `DETAILS_FILE`.
    """
    details = table_pb2.FragmentReuseIndexDetails()
    if is_inline:
        details.inline.MergeFromString(content)
        details.inline.SetInParent()
    else:
        details.external.path, details.external.size = DETAILS_FILE, len(content)
    fields = IndexFields(
        uuid=uuid,
        name=NAME,
        fields=(),
        dataset_version=dataset_version,
        fragment_ids=frozenset(fragment_ids),
        created_at=created_at,
        details=(_TYPE_URL, details.SerializeToString()),
    )
    return make_index(fields)


def current_coverage(index: IndexMetadata, versions: Sequence[ReuseVersion]) -> IndexMetadata:
    """Return an entry that covers the fragments after the compactions instead of those before.

    As in `lance_core.table.rules.apply_indices.after_rewrite`, an index covers the new fragments of a group if it
    covered all old ones.
    """
    covered = index.fragment_ids
    if index.name == NAME or not covered:
        return index
    before = covered
    for version in versions:
        for group in version.groups:
            old = {fragment.id for fragment in group.old_fragments}
            if old.isdisjoint(covered):
                continue
            added = {fragment.id for fragment in group.new_fragments} if old <= covered else set[int]()
            covered = covered - old | added
    return with_changed_coverage(index, removed=before - covered, added=covered - before)


def untrimmed_versions(versions: Sequence[ReuseVersion], indices: Iterable[IndexMetadata]) -> tuple[ReuseVersion, ...]:
    """Return the versions that an index may still need.

    An index needs none if it covers no fragment of any version, old or new. Else it needs those that are not older than
    the version that it was built on.

    Args:
        versions: All versions.
        indices: The indices of the table.
    """
    entries = [index_fields(index) for index in indices if index.name != NAME]
    touched = {fragment.id for version in versions for fragment in _fragments(version)}
    needing = [
        fields.dataset_version
        for fields in entries
        if fields.fields and (fields.fragment_ids is None or not touched.isdisjoint(fields.fragment_ids))
    ]
    oldest = min(needing, default=None)
    return tuple(version for version in versions if oldest is not None and oldest <= version.dataset_version)


def new_fragment_ids(versions: Iterable[ReuseVersion]) -> frozenset[int]:
    """Return the ids of the fragments after the compactions."""
    return frozenset(
        fragment.id for version in versions for group in version.groups for fragment in group.new_fragments
    )


def _fragments(version: ReuseVersion) -> Iterable[FragmentDigest]:
    for group in version.groups:
        yield from group.old_fragments
        yield from group.new_fragments


def _versions(content: table_pb2.FragmentReuseIndexDetails.InlineContent) -> tuple[ReuseVersion, ...]:
    return tuple(
        ReuseVersion(
            dataset_version=version.dataset_version,
            groups=tuple(
                ReuseGroup(
                    live_rows=group.changed_row_addrs,
                    old_fragments=tuple(map(_of_digest, group.old_fragments)),
                    new_fragments=tuple(map(_of_digest, group.new_fragments)),
                )
                for group in version.groups
            ),
        )
        for version in content.versions
    )


def _of_digest(pb: table_pb2.FragmentReuseIndexDetails.FragmentDigest) -> FragmentDigest:
    return FragmentDigest(id=pb.id, physical_rows=pb.physical_rows, num_deleted_rows=pb.num_deleted_rows)


def _digest(fragment: FragmentDigest) -> table_pb2.FragmentReuseIndexDetails.FragmentDigest:
    return table_pb2.FragmentReuseIndexDetails.FragmentDigest(
        id=fragment.id, physical_rows=fragment.physical_rows, num_deleted_rows=fragment.num_deleted_rows
    )
