"""Rules that decide what cleanup may delete; pure.

A version may go if every rule that was given allows it, and if it is not the newest, tagged, detached or the origin of
a branch. A file may go if no version that stays needs it, and if it is known to have belonged to a version that goes;
a file that belongs to no version at all may be the work of a writer that has not committed yet, and must be old.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal, TypeAlias, TypedDict

from lance_core.common.frozen import frozen, mutable
from lance_core.errors import InvalidInputError
from lance_core.format.blobs import BLOB_SUFFIX, data_path_of_blobs
from lance_core.format.table.fragment import ExternalFile, decode_fragment, lineage_sequences
from lance_core.format.table.paths import (
    BASE_PREFIX,
    DATA_FOLDER,
    DELETIONS_FOLDER,
    INDICES_FOLDER,
    TRANSACTIONS_FOLDER,
    VERSIONS_FOLDER,
    data_file_path,
    deletion_file_path,
    external_file_path,
    path_in_base,
    split_base_path,
    transaction_path,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from lance_core.format.table.base_path import BasePath
    from lance_core.format.table.manifest import ManifestFiles

DEFAULT_OLDER_THAN = timedelta(days=14)
UNVERIFIED_MIN_AGE = timedelta(days=7)
"""How long a writer may take from its first file to its commit."""
QUIET_AGE = timedelta(days=1)
"""Minimum age of the newest version and of every file before unverified files may be deleted."""

Kind: TypeAlias = Literal["manifest", "data", "deletion", "index", "transaction", "temporary"]

_KINDS: dict[str, Kind] = {
    DATA_FOLDER: "data",
    DELETIONS_FOLDER: "deletion",
    INDICES_FOLDER: "index",
    TRANSACTIONS_FOLDER: "transaction",
}
SWEPT_FOLDERS = (*_KINDS, VERSIONS_FOLDER)
_SUFFIXES: dict[Kind, tuple[str, ...]] = {
    "data": (".lance", BLOB_SUFFIX),
    "deletion": (".arrow", ".bin"),
    "index": ("",),
    "transaction": (".txn",),
}
_TEMPORARY_PREFIX = ".tmp"


class RuleArguments(TypedDict, total=False):
    """Arguments of `make_rules`; see `CleanupRules`."""

    older_than: timedelta | None
    retain_versions: int | None
    versions: Sequence[int] | None
    delete_unverified: bool
    force: bool
    error_if_tagged_old_versions: bool
    keep_versions: Collection[int]
    grace_period: timedelta


def make_rules(given: RuleArguments) -> CleanupRules:
    """Rules from arguments that callers have as they like.

    Raises:
        InvalidInputError: They make no sense.
    """
    versions = given.get("versions")
    return CleanupRules(
        older_than=given.get("older_than"),
        retain_versions=given.get("retain_versions"),
        versions=None if versions is None else frozenset(versions),
        delete_unverified=given.get("delete_unverified", False),
        force=given.get("force", False),
        error_if_tagged_old_versions=given.get("error_if_tagged_old_versions", True),
        keep_versions=frozenset(given.get("keep_versions", ())),
        grace_period=given.get("grace_period", timedelta(0)),
    )


@frozen(kw_only=True)
class CleanupRules:
    """Rules for deleting versions; a version is deleted only if all given rules allow it.

    Attributes:
        older_than: Only versions committed longer ago.
        retain_versions: Never the newest so many.
        versions: Only these.
        delete_unverified: Delete data and index files that belong to no version before they are 7 days old. Refused
            unless the newest version and all files are older than a day, since a writer may be about to commit them.
        force: With ``delete_unverified``: nobody writes, so files of any age may go.
        error_if_tagged_old_versions: Refuse to clean up if a tagged version would go, rather than keep it.
        keep_versions: Never these.
        grace_period: Never versions that were the newest less than so long ago: who opened the table then may still
            read them, or commit what was made from them.
    """

    older_than: timedelta | None = None
    retain_versions: int | None = None
    versions: frozenset[int] | None = None
    delete_unverified: bool = False
    force: bool = False
    error_if_tagged_old_versions: bool = True
    keep_versions: frozenset[int] = frozenset()
    grace_period: timedelta = timedelta(0)

    def __post_init__(self) -> None:
        if self.retain_versions is not None and self.retain_versions <= 0:
            raise InvalidInputError(f"'retain_versions' must be at least 1, not {self.retain_versions}")
        if self.older_than is not None and not isinstance(self.older_than, timedelta):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInputError(f"'older_than' must be a timedelta, not {self.older_than!r}")
        if self.older_than is not None and self.older_than < timedelta(0):
            raise InvalidInputError(f"'older_than' must not be negative, but is {self.older_than}")
        if self.grace_period < timedelta(0):
            raise InvalidInputError(f"'grace_period' must not be negative, but is {self.grace_period}")
        if self.force and not self.delete_unverified:
            raise InvalidInputError("'force' has an effect only with 'delete_unverified'. Pass both, or neither")

    @property
    def needs_quiet(self) -> bool:
        """True if nobody may have written to the table lately."""
        return self.delete_unverified and not self.force

    def allow_unverified(self, kind: Kind, age: timedelta) -> bool:
        """Return whether a file of no version may go.

        Args:
            kind: What it is.
            age: Time since it was written.
        """
        if not self.delete_unverified or kind not in {"data", "index"}:
            return age > UNVERIFIED_MIN_AGE
        return self.force or age > QUIET_AGE

    @property
    def judges_age(self) -> bool:
        """Return whether it matters what time it is."""
        is_default = self.older_than is None and self.retain_versions is None and self.versions is None
        return is_default or bool(self.older_than) or bool(self.grace_period)

    def allow(
        self, version: int, *, timestamp: datetime | None, replaced: datetime | None, rank: int, now: datetime
    ) -> bool:
        """Return whether a version may go, tags and branches aside.

        Args:
            version: Its number.
            timestamp: When it was committed; None if its writer did not record it.
            replaced: When the next version was committed; None if unknown.
            rank: How many versions are newer.
            now: Current time.
        """
        older_than = self.older_than
        if older_than is None and self.retain_versions is None and self.versions is None:
            older_than = DEFAULT_OLDER_THAN
        if older_than is not None and (timestamp is None or timestamp >= now - older_than):
            return False
        if rank < (self.retain_versions or 1) or version in self.keep_versions:
            return False
        if self.grace_period and (replaced is None or replaced >= now - self.grace_period):
            return False
        return self.versions is None or version in self.versions


@mutable
class References:
    """Everything that a set of versions needs, as paths; index folders end in ``/``.

    Attributes:
        root: Address of the branch that is cleaned.
        paths: What is needed.
    """

    root: str = ""
    paths: set[str] = field(default_factory=set)
    _records: set[bytes] = field(default_factory=set)

    def add(self, manifest: ManifestFiles) -> None:
        """Add what a version needs; fragments that another version has, too, cost a look-up only."""
        if not self._records.issuperset(manifest.fragments):
            self._add_fragments(set(manifest.fragments) - self._records, manifest.base_paths)
        if manifest.transaction_file:
            self.paths.add(transaction_path(manifest.transaction_file))
        # An index at a base path keeps a folder of the same name here, which does no harm.
        for index in manifest.indices:
            self.paths.add(f"{INDICES_FOLDER}/{index.uuid_text}/")

    def _add_fragments(self, records: set[bytes], bases: Sequence[BasePath]) -> None:
        inside = {base.id: folder for base in bases if (folder := self._inside(base)) is not None}
        if not bases:  # numbers of base paths may mean something else in another version
            self._records |= records
        for record in records:
            fragment = decode_fragment(record)
            self._add_paths((data_file_path(file) for file in fragment.files), inside)
            external = (
                lineage_sequence
                for lineage_sequence in lineage_sequences(fragment)
                if isinstance(lineage_sequence, ExternalFile)
            )
            self._add_paths((external_file_path(file) for file in external), inside)
            if fragment.deletion_file is not None:
                self._add_paths([deletion_file_path(fragment.id, fragment.deletion_file)], inside)

    def _add_paths(self, paths: Iterable[str], inside: Mapping[int, tuple[str, bool]]) -> None:
        for path in paths:
            if not path.startswith(BASE_PREFIX):
                self.paths.add(path)
                continue
            base_id, rest = split_base_path(path)
            if base_id in inside:
                folder, is_root = inside[base_id]
                self.paths.add(folder + path_in_base(rest, is_dataset_root=is_root))

    def _inside(self, base: BasePath) -> tuple[str, bool] | None:
        """Return the folder that a base path names in the branch itself, and whether it is laid out like a dataset."""
        address = base.path.removeprefix("file://").rstrip("/") + "/"
        root = self.root.rstrip("/") + "/"
        return (address[len(root) :], base.is_dataset_root) if address.startswith(root) else None

    def __contains__(self, path: str) -> bool:
        if path.startswith(f"{INDICES_FOLDER}/"):
            return "/".join([*path.split("/", 2)[:2], ""]) in self.paths
        return (data_path_of_blobs(path) if path.endswith(BLOB_SUFFIX) else path) in self.paths


@frozen(kw_only=True)
class CandidateFile:
    """A file that clean-up deletes.

    Attributes:
        path: Relative to the dataset.
        kind: What it is.
        unverified: True if it belongs to no version.
        size_bytes: Its size.
    """

    path: str
    kind: Kind
    unverified: bool
    size_bytes: int


@frozen(kw_only=True)
class CleanupStats:
    """Numbers of what a cleanup deleted.

    Attributes:
        bytes_removed: Size of all files deleted.
        old_versions: Versions.
        data_files_removed: Files below ``data/``.
        transaction_files_removed: Files below ``_transactions/``.
        index_files_removed: Files below ``_indices/``.
        deletion_files_removed: Files below ``_deletions/``.
    """

    bytes_removed: int = 0
    old_versions: int = 0
    data_files_removed: int = 0
    transaction_files_removed: int = 0
    index_files_removed: int = 0
    deletion_files_removed: int = 0


def classify(
    path: str,
    *,
    size: int,
    modified: datetime,
    references: References,
    removed: References,
    rules: CleanupRules,
    now: datetime,
) -> CandidateFile | None:
    """Judge a file in one of the swept folders; None if it stays."""
    folder, _, rest = path.partition("/")
    name = rest.rpartition("/")[2]
    if name.startswith(_TEMPORARY_PREFIX):
        is_old = modified < now - UNVERIFIED_MIN_AGE
        return CandidateFile(path=path, kind="temporary", unverified=True, size_bytes=size) if is_old else None
    kind = _KINDS.get(folder)
    # Names that no writer of data files uses may be somebody's notes.
    if kind is None or not name.endswith(_SUFFIXES[kind]) or path in references:
        return None
    is_verified = path in removed
    if not (is_verified or rules.allow_unverified(kind, now - modified)):
        return None
    return CandidateFile(path=path, kind=kind, unverified=not is_verified, size_bytes=size)


def summarize(files: list[CandidateFile]) -> CleanupStats:
    """Count files by kind."""
    count = Counter([file.kind for file in files])
    return CleanupStats(
        bytes_removed=sum([file.size_bytes for file in files]),
        old_versions=count["manifest"],
        data_files_removed=count["data"],
        transaction_files_removed=count["transaction"],
        index_files_removed=count["index"],
        deletion_files_removed=count["deletion"],
    )
