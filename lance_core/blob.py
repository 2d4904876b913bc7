"""Blob columns: how to make them, and blobs as files. Names as in pylance's ``lance.blob``."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lance_core.common.frozen import frozen
from lance_core.common.unsupported import late_names
from lance_core.errors import InvalidInputError
from lance_core.format.blobs import DEDICATED_THRESHOLD_KEY, INLINE_THRESHOLD_KEY, PACK_THRESHOLD_KEY
from lance_core.format.schema import BLOB_EXTENSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from _typeshed import WriteableBuffer

    from lance_core.scan.blobs import BlobPlace, BlobSources

DEFAULT_BLOB_BUFFER_SIZE = 512 << 10
"""Bytes that sequential reading of a `BlobFile` is ahead."""

_STORAGE = pa.struct(
    [
        pa.field("data", pa.large_binary()),
        pa.field("uri", pa.string()),
        pa.field("position", pa.uint64()),
        pa.field("size", pa.uint64()),
    ]
)


@frozen(slots=False)
class Blob:
    """One value of a blob column: bytes, or the address of an external blob.

    Attributes:
        data: The bytes.
        uri: Absolute address of an object.
        position: First byte of the blob in that object; None for all of it.
        size: Bytes from there; given together with the position.

    Raises:
        InvalidInputError: Neither bytes nor address, or both; half of a range.
    """

    data: bytes | None = None
    uri: str | None = None
    position: int | None = None
    size: int | None = None

    def __post_init__(self) -> None:
        if (self.data is None) == (self.uri is None):
            raise InvalidInputError("a blob takes either 'data' or 'uri', not both. Use None for null")
        if self.uri == "":
            raise InvalidInputError("the 'uri' of a blob must not be empty")
        if (self.position is None) != (self.size is None) or (self.position is not None and self.uri is None):
            raise InvalidInputError("a blob takes 'position' and 'size' only together, and only with 'uri'")
        if self.position is not None and self.size is not None and (self.position < 0 or self.size < 1):
            raise InvalidInputError("'position' of a blob must be at least 0 and 'size' at least 1")

    @staticmethod
    def from_bytes(data: bytes | bytearray | memoryview) -> Blob:
        """Return a blob that is stored in the table."""
        return Blob(data=bytes(data))

    @staticmethod
    def from_uri(uri: str, position: int | None = None, size: int | None = None) -> Blob:
        """Return a blob that stays where it is, or a part of it."""
        return Blob(uri=uri, position=position, size=size)

    @staticmethod
    def empty() -> Blob:
        """Return a blob of no bytes, which is not null."""
        return Blob(data=b"")


class BlobType(pa.ExtensionType):  # pyright: ignore[reportUntypedBaseClass]
    """Arrow type of blob columns: extension ``lance.blob.v2`` over struct ``data``, ``uri``, ``position``, ``size``."""

    def __init__(self, storage_type: pa.DataType = _STORAGE) -> None:
        super().__init__(storage_type, BLOB_EXTENSION)

    def __arrow_ext_serialize__(self) -> bytes:
        """No parameters."""
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> BlobType:
        """Keep the storage as it is; pylance's has two or four fields."""
        del serialized
        return cls(storage_type)


def blob_array(values: Iterable[bytes | bytearray | memoryview | str | Blob | None]) -> pa.ExtensionArray:
    """Make an array of blobs.

    Args:
        values: Bytes, `Blob`, the address of an external blob as text, or None.

    Raises:
        InvalidInputError: Something else.
    """
    rows = [_storage_row(value) for value in values]
    return pa.ExtensionArray.from_storage(BlobType(), pa.array(rows, _STORAGE))


def _storage_row(value: Any) -> dict[str, Any] | None:
    if value is None:
        return None
    if isinstance(value, str):
        value = Blob(uri=value)
    elif isinstance(value, (bytes, bytearray, memoryview)):
        value = Blob(data=bytes(value))
    if isinstance(value, Blob):
        return {"data": value.data, "uri": value.uri, "position": value.position, "size": value.size}
    if all(hasattr(value, name) for name in ("data", "uri", "position", "size")):  # pylance's Blob
        return {name: getattr(value, name) for name in ("data", "uri", "position", "size")}
    raise InvalidInputError(f"a blob must be bytes, a str (address), a Blob or None, not {type(value).__name__}")


def blob_field(
    name: str,
    *,
    nullable: bool = True,
    inline_size_threshold: int | None = None,
    dedicated_size_threshold: int | None = None,
    pack_file_size_threshold: int | None = None,
) -> pa.Field:
    """Make the Arrow field of a blob column.

    Args:
        name: Name of the column.
        nullable: Whether blobs may be null.
        inline_size_threshold: Bytes up to which a blob is kept in the data file; 64 KiB if None.
        dedicated_size_threshold: Bytes up to which a blob shares a file with others; 4 MiB if None.
        pack_file_size_threshold: Bytes up to which such a file grows; 1 GiB if None.

    Raises:
        InvalidInputError: A threshold that is no such number.
    """
    given = (
        (INLINE_THRESHOLD_KEY, inline_size_threshold, 0),
        (DEDICATED_THRESHOLD_KEY, dedicated_size_threshold, 1),
        (PACK_THRESHOLD_KEY, pack_file_size_threshold, 1),
    )
    metadata: dict[str, str] = {}
    for key, value, least in given:
        if value is None:
            continue
        if isinstance(value, bool) or not least <= value < 2**64:
            raise InvalidInputError(
                f"'{key.rpartition(':')[2]}' must be a number of bytes of at least {least}, not {value!r}"
            )
        metadata[key] = str(value)
    return pa.field(name, BlobType(), nullable=nullable, metadata=metadata or None)


class BlobFile(io.BufferedIOBase):
    """A blob as a file for reading; it reads ranges when they are needed. `LanceDataset.take_blobs` makes them.

    Args:
        sources: The objects that hold blobs.
        location: Where this one is.
        buffer_size: Bytes that sequential reading is ahead; 0 for none.

    Raises:
        InvalidInputError: A negative buffer size.
    """

    def __init__(
        self, sources: BlobSources, location: BlobPlace, *, buffer_size: int = DEFAULT_BLOB_BUFFER_SIZE
    ) -> None:
        if isinstance(buffer_size, bool) or buffer_size < 0:
            raise InvalidInputError(f"'buffer_size' must be a number of bytes of at least 0, not {buffer_size!r}")
        self._sources = sources
        self._location = location
        self._buffer_size = buffer_size
        self._bounds: tuple[int, int] | None = None
        self._at = 0
        self._buffered = (0, b"")

    def __repr__(self) -> str:
        return f"<BlobFile size={self.size()}>"

    def size(self) -> int:
        """Return bytes of the blob."""
        if not self._location.is_whole:
            return self._location.size
        start, end = self._range()
        return end - start

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def tell(self) -> int:
        """Position of the next byte."""
        self._check_open()
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a position, which may lie behind the end.

        Raises:
            ValueError: Before the beginning, or an unknown ``whence``.
        """
        self._check_open()
        bases = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.size() if whence == io.SEEK_END else 0}
        if whence not in bases:
            raise ValueError(f"Invalid whence: {whence}")
        if bases[whence] + offset < 0:
            raise ValueError(f"negative seek value {bases[whence] + offset}")
        self._at = bases[whence] + offset
        return self._at

    def read(self, size: int | None = -1, /) -> bytes:
        """Read up to ``size`` bytes, all that are left if it is negative or None."""
        self._check_open()
        left = max(0, self.size() - self._at)
        wanted = left if size is None or size < 0 else min(size, left)
        start, data = self._buffered
        if not start <= self._at or self._at + wanted > start + len(data):
            start, data = self._at, self._fetch(self._at, min(left, max(wanted, self._buffer_size)))
            self._buffered = (start, data) if len(data) <= max(self._buffer_size, 0) else (0, b"")
        data_part = data[self._at - start : self._at - start + wanted]
        self._at += len(data_part)
        return data_part

    def read1(self, size: int = -1, /) -> bytes:
        """As `read`, but at most 8 KiB if no size is given."""
        return self.read(io.DEFAULT_BUFFER_SIZE if size < 0 else size)

    def readall(self) -> bytes:
        """Return all bytes that are left."""
        return self.read()

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Read bytes into a buffer; how many."""
        with memoryview(buffer) as view, view.cast("B") as target:
            data = self.read(len(target))
            target[: len(data)] = data
        return len(data)

    def read_range(self, offset: int, length: int) -> bytes:
        """Read some bytes, wherever the position is; it stays there.

        Raises:
            InvalidInputError: Bytes beyond the end.
        """
        return self.read_ranges([(offset, length)])[0]

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Read several ranges (offset, length) at the same time; errors as in `read_range`."""
        self._check_open()
        size = self.size()
        for offset, length in ranges:
            if offset < 0 or length < 0 or offset + length > size:
                raise InvalidInputError(f"cannot read bytes {offset} to {offset + length}: the blob has {size} bytes")
        start = self._range()[0]
        wanted = [(start + offset, start + offset + length) for offset, length in ranges]
        return [buffer.to_pybytes() for buffer in self._sources.reader(self._location).read_ranges(wanted)]

    def _fetch(self, offset: int, size: int) -> bytes:
        return self.read_ranges([(offset, size)])[0] if size else b""

    def _range(self) -> tuple[int, int]:
        if self._bounds is None:
            self._bounds = self._sources.bounds(self._location)
        return self._bounds

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("read of closed file")


__getattr__ = late_names(__name__)
