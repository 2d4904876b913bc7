"""A cache of what was decoded from files of a segment, bounded by its bytes."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable

CACHE_BYTES = 512 << 20
"""Bytes that a segment of a vector or full-text index keeps in memory.

A query that probes more reads all of it each time: 20 partitions of 200,000 vectors of 768 floats were 276 MB, since
partitions in the middle are large, and near to most queries."""

_K = TypeVar("_K", bound="Hashable")
_V = TypeVar("_V")


class BoundedCache(Generic[_K, _V]):
    """Values by key; those that were used least recently go when there are too many bytes. May be shared by threads.

    Args:
        max_bytes: Bytes to keep at most.
    """

    def __init__(self, max_bytes: int = CACHE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._values: OrderedDict[_K, tuple[_V, int]] = OrderedDict()
        self._num_bytes = 0
        self._lock = Lock()

    def get(self, key: _K) -> _V | None:
        """Return the value of a key; None if it is not there."""
        with self._lock:
            cached = self._values.get(key)
            if cached is None:
                return None
            self._values.move_to_end(key)
            return cached[0]

    def put(self, key: _K, value: _V, num_bytes: int) -> None:
        """Keep a value, in place of another one of the same key.

        Args:
            key: The key.
            value: The value; one that is larger than the whole cache is not kept.
            num_bytes: Its size.
        """
        with self._lock:
            _, before = self._values.pop(key, (None, 0))
            self._num_bytes -= before
            if num_bytes > self._max_bytes:
                return
            self._values[key] = value, num_bytes
            self._num_bytes += num_bytes
            while self._num_bytes > self._max_bytes:
                _, (_, size) = self._values.popitem(last=False)
                self._num_bytes -= size
