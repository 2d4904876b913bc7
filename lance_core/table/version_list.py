"""The versions of a branch, as a sequence whose entries are read when they are looked at.

A history may have 10,000 versions, and most who ask for it want to know how many there are, or the last few. Entries
cost a look at the manifest each; where that is small, only what the entry needs is decoded, and versions share most of
their fragments.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, overload

from lance_core.errors import VersionNotFoundError
from lance_core.format.table.fragment import FragmentTotals, decode_totals
from lance_core.format.table.manifest import decode_manifest_file, decode_manifest_files
from lance_core.table.snapshot import READ_AHEAD, READERS, find_versions, load_manifest_file
from lance_core.table.statistics import version_entry, version_summary

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lance_core.format.table.paths import ManifestNaming
    from lance_core.store.base import Store

_SMALL_MANIFEST = 1 << 14
"""Bytes; in larger ones, the numbers of all fragments are found together."""
_MOST_KNOWN = 1 << 14


class VersionList(Sequence[dict[str, Any]]):
    """All versions of a branch at one moment, ascending.

    Entries are dicts with ``version``, ``timestamp`` (local time without a time zone, as in pylance) and ``metadata``
    (numbers as text, as far as the writer of the version recorded them: pylance before 0.8 did not record rows, which
    count as 0 here). What was cleaned up since it was listed is left out by loops, and a VersionNotFoundError where it
    is asked for by its place.

    Args:
        store: The branch.
    """

    def __init__(self, store: Store) -> None:
        versions = find_versions(store)
        self._store = store
        self._numbers: Sequence[int] = versions.numbers
        self._naming: ManifestNaming = versions.naming
        self._totals: dict[bytes, FragmentTotals] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, index: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        if isinstance(index, slice):
            return list(self._entries(self._numbers[index]))
        return self._entry(self._numbers[index])

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self._entries(self._numbers)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (VersionList, list)):
            return NotImplemented
        return list(self) == list(other)

    __hash__ = None  # pyright: ignore[reportAssignmentType] - as for a list

    def __repr__(self) -> str:
        return repr(list(self))

    def _entries(self, numbers: Sequence[int]) -> Iterator[dict[str, Any]]:
        if "://" not in self._store.uri:  # a local file is read in less time than it takes to ask a thread for it
            return (entry for entry in map(self._find, numbers) if entry is not None)
        return self._read_ahead(numbers)

    def _read_ahead(self, numbers: Sequence[int]) -> Iterator[dict[str, Any]]:
        with ThreadPoolExecutor(READERS) as pool:
            for start in range(0, len(numbers), READ_AHEAD):
                for entry in pool.map(self._find, numbers[start : start + READ_AHEAD]):
                    if entry is not None:
                        yield entry

    def _find(self, number: int) -> dict[str, Any] | None:
        try:
            return self._entry(number)
        except VersionNotFoundError:
            return None

    def _entry(self, number: int) -> dict[str, Any]:
        data, path = load_manifest_file(self._store, number, naming=self._naming)
        if len(data) > _SMALL_MANIFEST:
            return version_summary(decode_manifest_file(data, version=number, path=path))
        files = decode_manifest_files(data, version=number, path=path)
        entries = self._totals
        if len(entries) > _MOST_KNOWN:
            entries.clear()
        rows = deleted = num_files = num_bytes = num_deletion_files = 0
        for record in files.fragments:
            entry = entries.get(record)
            if entry is None:
                entry = entries[record] = decode_totals(record)
            rows += entry[0]
            deleted += entry[1]
            num_files += entry[2]
            num_bytes += entry[3]
            num_deletion_files += entry[4]
        totals = FragmentTotals(rows, deleted, num_files, num_bytes, num_deletion_files)
        return version_entry(number, files.timestamp, totals, len(files.fragments))
