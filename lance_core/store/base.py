"""Protocols of stores: the operations on objects that the rest of lance_core needs.

A store is rooted at one dataset directory; every path below is relative to it and uses ``/``. The guarantees are
those of the table format: a finished object is visible as a whole or not at all, ``put_if_absent`` lets exactly one
of several writers win, and a listing shows every object whose creation has finished.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeGuard, TypeVar, runtime_checkable

from lance_core.common.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence
    from datetime import datetime

    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa


_Extra = TypeVar("_Extra")
_Result_co = TypeVar("_Result_co", covariant=True)


@frozen(kw_only=True)
class ObjectInfo:
    """One object in a listing.

    Attributes:
        path: Path relative to the store's root.
        size: Bytes.
        modified: Time of the last write, UTC.
    """

    path: str
    size: int
    modified: datetime


class ObjectReader(Protocol):
    """Random access to one finished object."""

    @property
    def size(self) -> int:
        """Bytes in the object."""
        ...

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
        """Read half-open byte ranges, announced together; one buffer for each, in the order given."""
        ...

    def close(self) -> None:
        """Release the handle; buffers already returned stay valid."""
        ...


class PendingRead(Protocol[_Result_co]):
    """A read that is on its way."""

    def result(self) -> _Result_co:
        """Wait for what was asked for, once."""
        ...

    def cancel(self) -> None:
        """Say that nobody wants it."""
        ...


@runtime_checkable
class AheadReader(Protocol):
    """Optional: begins a read without waiting for it."""

    def begin_ranges(self, ranges: Sequence[tuple[int, int]], /) -> PendingRead[list[pa.Buffer]]:
        """Begin to read half-open byte ranges; see `ObjectReader.read_ranges`."""
        ...

    def merged(
        self, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], /
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return ranges that are cheaper to read than those given, which are ascending and apart, and hold them."""
        ...

    def begin_copy(self, into: memoryview, ranges: Sequence[tuple[int, int]], /) -> PendingRead[None]:
        """Begin to copy ascending ranges, one behind the other; all is there when the result is."""
        ...


@runtime_checkable
class MappedReader(Protocol):
    """An object that lies in memory as a whole, or looks as if it did."""

    @property
    def mapped(self) -> pa.Buffer:
        """The whole object; nothing is read before it is looked at."""
        ...

    def announce(self, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], /) -> None:
        """Ask for ranges that are about to be looked at, without waiting for them."""
        ...


@runtime_checkable
class CopiedReader(MappedReader, Protocol):
    """A mapped object that can be copied from, too: small ranges here and there cost less than to look at them."""

    def copy_present(self, into: memoryview, ranges: Sequence[tuple[int, int]], /) -> int:
        """Copy ranges, one behind the other, as far as the first for which one would have to wait; how many."""
        ...

    def copy(self, into: memoryview, ranges: Sequence[tuple[int, int]], /) -> None:
        """Copy ranges, one behind the other; NotFoundError if the object ends before that."""
        ...


@runtime_checkable
class StampedReader(Protocol):
    """An object of which it can be told whether it is the one that was read before."""

    @property
    def stamp(self) -> Hashable:
        """Identity and time of the last change of the object."""
        ...


class ObjectWriter(Protocol):
    """An object being written; nobody sees it before ``commit``."""

    def write(self, data: bytes | memoryview | pa.Buffer) -> None:
        """Append bytes."""
        ...

    def commit(self) -> int:
        """Make the object visible and return its size in bytes."""
        ...

    def abort(self) -> None:
        """Drop everything written so far; nothing happens after ``commit``."""
        ...


class ObjectSource(Protocol):
    """Reads objects."""

    def reader(self, path: str, /) -> ObjectReader:
        """Open an object for reading; NotFoundError if it is not there."""
        ...

    def get(self, path: str, /) -> bytes:
        """Read a whole (small) object; NotFoundError if it is not there."""
        ...


class ObjectSink(Protocol):
    """Writes objects."""

    def writer(self, path: str, /) -> ObjectWriter:
        """Begin a new object; an existing one is replaced at ``commit``."""
        ...

    def put(self, path: str, data: bytes, /) -> None:
        """Write a whole object, replacing what is there."""
        ...

    def put_if_absent(self, path: str, data: bytes, /) -> bool:
        """Create an object atomically; False if it exists, UnsafeStoreError if the store cannot promise that.

        Any other error leaves open whether the object was created.
        """
        ...


class ObjectFolder(Protocol):
    """Lists and deletes objects."""

    def names(self, folder: str, /) -> list[str]:
        """Names of what lies directly in ``folder``, in no particular order; nothing if it does not exist."""
        ...

    def list(self, prefix: str, /) -> Iterator[ObjectInfo]:
        """Return all objects below the folder ``prefix``, in no particular order; nothing if it does not exist."""
        ...

    def delete(self, paths: Sequence[str], /) -> None:
        """Delete objects; those that are gone already are no error."""
        ...


@runtime_checkable
class OrderedFolder(Protocol):
    """Optional: lists the first names of a folder without listing all of it."""

    def first_names(self, folder: str, count: int, /) -> list[str]:
        """At most the first ``count`` names in ascending order (of code points)."""
        ...


@runtime_checkable
class SettledFolder(Protocol):
    """Optional: tells that nothing has happened in a folder since an object was put there."""

    def settled(self, path: str, /) -> bytes | None:
        """Content of an object if nothing in its folder was created or deleted since it was put there; else None."""
        ...

    def settle(self, path: str, data: bytes, /) -> None:
        """Put an object there that is to be found `settled`; who reads it meanwhile may see parts of old and new."""
        ...

    def exists(self, path: str, /) -> bool:
        """Return whether there is an object."""
        ...


@runtime_checkable
class PieceSink(Protocol):
    """Optional: creates an object from pieces that are not joined in memory."""

    def put_pieces_if_absent(self, path: str, pieces: Sequence[bytes | memoryview], /) -> bool:
        """As ``put_if_absent``, for bytes that lie end to end in the object."""
        ...


@runtime_checkable
class BatchSink(Protocol):
    """Optional: writes several objects at the same time."""

    def begin_puts(self, objects: Sequence[tuple[str, bytes]], /) -> Sequence[PendingRead[object]]:
        """Begin to write whole objects, replacing what is there; each is there when its result is."""
        ...


@runtime_checkable
class ObjectSizes(Protocol):
    """Optional: returns the sizes of many objects at the same time."""

    def sizes(self, paths: Sequence[str], /) -> list[int]:
        """Return bytes in each object; NotFoundError if one is not there."""
        ...


@runtime_checkable
class FarStore(Protocol):
    """Optional: reads several objects at the same time, for stores with a long latency."""

    @property
    def at_once(self) -> int:
        """Objects that may be read at the same time."""
        ...

    def sized_reader(self, path: str, size: int, /, *, most_bytes: int) -> ObjectReader:
        """Open an object that has ``size`` bytes if it is what it was; one of at most ``most_bytes`` comes whole."""
        ...


@runtime_checkable
class FolderRemover(Protocol):
    """A store whose folders outlive their files and can be removed when they are empty."""

    def remove_empty_folders(self, folder: str, /) -> None:
        """Remove a folder and those in it as far as they are empty, then those above it; "" for the whole dataset."""
        ...


def offers(store: object, extra: type[_Extra], method: str) -> TypeGuard[_Extra]:  # noqa: ARG001 for the type checker
    """Return whether a store or a reader has an optional capability, by the name of one of its methods.

    ``isinstance`` says the same, but asks for all names that a protocol has, which takes as long as to look at a file.
    """
    return hasattr(store, method)


class Store(ObjectSource, ObjectSink, ObjectFolder, Protocol):
    """Objects below one dataset root."""

    @property
    def uri(self) -> str:
        """Absolute address of the root."""
        ...
