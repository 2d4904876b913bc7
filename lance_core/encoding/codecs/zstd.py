"""zstd frames, many at a time: by the package zstandard, or by Arrow's codec where it cannot be imported.

The package keeps its contexts from one frame to the next and decompresses into memory that is already there. A new
context costs more than a chunk of 16 KiB.
"""

from __future__ import annotations

import importlib
import threading
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from lance_core.encoding.kernels import view_buffer
from lance_core.errors import CorruptDataError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from lance_core.encoding.values import Bytes

Compress: TypeAlias = "Callable[[Bytes], bytes]"
"""Makes one frame, which tells the size of its content."""

DEFAULT_LEVEL = 1
WORDS_LEVEL = 3
"""The level for texts of few words: it finds what is repeated after a few bytes."""

_MOST_KEPT_LEVEL = 3
_FRAME_START = bytes.fromhex("28b52ffda0")  # 4 bytes for the content's size, which is the window; no checksum
_SMALL_BYTES = 1 << 15
_SMALL_TABLES = {
    DEFAULT_LEVEL: {
        "compression_level": DEFAULT_LEVEL, "strategy": 1, "window_log": 15, "hash_log": 12, "chain_log": 11,
        "search_log": 1, "min_match": 6, "target_length": 0,
    },
    WORDS_LEVEL: {
        "compression_level": WORDS_LEVEL, "strategy": 2, "window_log": 15, "hash_log": 12, "chain_log": 11,
        "search_log": 1, "min_match": 5, "target_length": 0,
    },
}  # fmt: skip
"""What levels come to for small chunks: zstd's own tables would hold up to 64 times as many entries, which must be
emptied for every chunk. Beside them a twentieth to a tenth less time, and as many bytes within a hundredth: `strategy`
1 is fast, 2 is dfast. Matches of six bytes at least: log lines take 1 % more than with five, and a twentieth less time
to write and to read; of seven bytes 3 % more."""


class ArrowZstd:
    """Makes and reads frames by Arrow's codec; any number of threads may use one."""

    def compressor(self, level: int | None, largest: int) -> Compress:  # noqa: ARG002 - see `PackageZstd`
        """Return what makes frames in this thread.

        Args:
            level: Effort, up to 22; None for the default.
            largest: Bytes that a frame will hold at most.
        """
        codec = pa.Codec("zstd", compression_level=DEFAULT_LEVEL if level is None else level)
        return lambda data: codec.compress(pa.py_buffer(data), asbytes=True)

    def decompress(self, frames: Bytes, out: Bytes) -> None:
        """Fill memory with the content of frames that lie end to end.

        Raises:
            CorruptDataError: The frames hold more or less, or are none.
        """
        try:
            content = pa.Codec("zstd").decompress(pa.py_buffer(frames), decompressed_size=len(out))
        except (OSError, pa.ArrowException, MemoryError) as error:
            raise CorruptDataError(f"zstd: {error}") from error
        _check(content.size, out)
        out[:] = view_buffer(content)


class _Contexts(threading.local):
    """The contexts of one thread: zstd's must not be shared."""

    def __init__(self) -> None:
        self.compressors: dict[tuple[int, bool], Any] = {}
        self.decompressor: Any = None


class PackageZstd:
    """Frames by the package zstandard."""

    def __init__(self, package: ModuleType) -> None:
        self._package: Any = package
        self._contexts = _Contexts()

    def compressor(self, level: int | None, largest: int) -> Compress:
        """See `ArrowZstd`."""
        level = DEFAULT_LEVEL if level is None else level
        key = level, level in _SMALL_TABLES and largest <= _SMALL_BYTES
        compressor_of_level = self._contexts.compressors.get(key)
        if compressor_of_level is None:
            compressor_of_level = self._new_compressor(*key)
            if level <= _MOST_KEPT_LEVEL:  # those of higher levels are large
                self._contexts.compressors[key] = compressor_of_level
        compress: Compress = compressor_of_level.compress
        return compress

    def _new_compressor(self, level: int, is_small: bool) -> Any:
        package = self._package
        if is_small:
            return package.ZstdCompressor(compression_params=package.ZstdCompressionParameters(**_SMALL_TABLES[level]))
        return package.ZstdCompressor(level=level)

    def decompress(self, frames: Bytes, out: Bytes) -> None:
        """See `ArrowZstd`."""
        if self._contexts.decompressor is None:
            self._contexts.decompressor = self._package.ZstdDecompressor()
        try:
            reader = self._contexts.decompressor.stream_reader(frames, read_across_frames=True)
            size = reader.readinto(out) + len(reader.read(1))
        except (self._package.ZstdError, MemoryError) as error:
            raise CorruptDataError(f"zstd: {error}") from error
        _check(size, out)


def with_plain_head(head: Bytes, frame: bytes, size: int) -> bytes:
    """Return a frame of bytes that are stored as they are, then of what another frame holds.

    Args:
        head: Up to 128 KiB.
        frame: A frame without checksum.
        size: Bytes that it holds.

    Source: RFC 8878, sections 3.1.1.1 and 3.1.1.2: the header of a frame, and of its blocks.
    """
    # Bits 6 and 7: bytes of the content's size; 5: no window is told; 0 and 1: bytes of a dictionary's id.
    kind = frame[4]
    blocks = 5 + (0 if kind & 0x20 else 1) + (0, 1, 2, 4)[kind & 3] + ((kind & 0x20) >> 5, 2, 4, 8)[kind >> 6]
    told = _FRAME_START + (len(head) + size).to_bytes(4, "little") + (len(head) << 3).to_bytes(3, "little")
    return told + head.tobytes() + frame[blocks:]


def _check(size: int, out: Bytes) -> None:
    if size != len(out):
        raise CorruptDataError(f"zstd: frames of another size than the {len(out)} bytes that were announced")


def best_zstd() -> ArrowZstd | PackageZstd:
    """Return the package where it is there, else Arrow."""
    try:
        return PackageZstd(importlib.import_module("zstandard"))
    except ImportError:
        return ArrowZstd()


ZSTD = best_zstd()
