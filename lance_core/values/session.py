"""Sessions, which share caches between data sets in pylance."""

from __future__ import annotations


class Session:
    """Stands where pylance shares its caches between data sets.

    lance_core shares what it learns of files between all data sets of a process, within fixed bounds, so a session
    changes nothing; `LanceDataset.session` returns the one that the data set was opened with.

    Args:
        index_cache_size_bytes: Accepted.
        metadata_cache_size_bytes: Accepted.
    """

    def __init__(self, index_cache_size_bytes: int | None = None, metadata_cache_size_bytes: int | None = None) -> None:
        del index_cache_size_bytes, metadata_cache_size_bytes

    def size_bytes(self) -> int:
        """Return bytes that the session itself keeps: none."""
        return 0

    def is_same_as(self, other: Session) -> bool:
        """Return whether both are one session."""
        return self is other
