"""Read blob files, and hold what is read against the checksums that their data file has of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_core.errors import CorruptDataError
from lance_core.file.container import Container
from lance_core.format.file.blob_checksums import decode_blob_sums

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from lance_core.file.source import FileBytes
    from lance_core.format.file.blob_checksums import BlobSums
    from lance_core.store.base import ObjectReader

_PART_BYTES = 1 << 25


def blob_sums(file: FileBytes, *, path: str) -> BlobSums | None:
    """Return the checksums that a data file has of its blob files; None if it has none.

    Args:
        file: The data file.
        path: Its name, for error messages.

    Raises:
        CorruptDataError: The data file is damaged.
    """
    try:
        return None if file.checks is None else decode_blob_sums(Container(file).buffer_before_sums())
    except CorruptDataError as error:
        error.path = path
        raise


class CheckedBlobFile:
    """A blob file whose bytes are known; see `lance_core.store.base.ObjectReader`.

    Args:
        source: The blob file.
        sums: The checksums of all blob files of its data file.
        blob_id: Its number.
        path: Its name, for error messages.

    Raises:
        CorruptDataError: It has another size, or there must be no such blob file.
    """

    def __init__(self, source: ObjectReader, checksums: BlobSums, blob_id: int, *, path: str) -> None:
        self._source = source
        self._checksums = checksums
        self._blob_id = blob_id
        self._path = path
        if not 0 < blob_id <= checksums.num_files:
            raise CorruptDataError(f"there is no blob file {blob_id} of {checksums.num_files}", path=path)
        expected = int(checksums.sizes[blob_id - 1])
        if source.size != expected:
            raise CorruptDataError(f"the blob file has {source.size} bytes instead of {expected}", path=path)

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return self._source.size

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
        """Half-open ranges of the file.

        Raises:
            CorruptDataError: They are not what was written.
        """
        wide = [self._checksums.widened(self._blob_id, start, end) for start, end in ranges]
        buffers: list[pa.Buffer] = []
        for (start, end), (low, _), buffer in zip(ranges, wide, self._source.read_ranges(wide), strict=True):
            self._check(buffer, low)
            buffers.append(buffer.slice(start - low, end - start))
        return buffers

    def check_all(self) -> None:
        """Hold the whole file against its checksums; errors as `read_ranges`."""
        for start in range(0, self.size, _PART_BYTES):
            self.read_ranges([(start, min(start + _PART_BYTES, self.size))])

    def close(self) -> None:
        """Release the file."""
        self._source.close()

    def _check(self, buffer: pa.Buffer, at: int) -> None:
        try:
            self._checksums.check(self._blob_id, memoryview(buffer), at=at)
        except CorruptDataError as error:
            error.path = self._path
            raise
