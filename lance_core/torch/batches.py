"""Record batches on their way to tensors: put together, and kept on disk for the next epoch. No PyTorch here."""

from __future__ import annotations

import weakref
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory, mkdtemp
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


def concat_batches(bs: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Join batches of one schema into one.

    Args:
        bs: At least one batch.
    """
    if len(bs) == 1:
        return bs[0]
    columns = [pa.concat_arrays([batch.column(index) for batch in bs]) for index in range(bs[0].num_columns)]
    return pa.RecordBatch.from_arrays(columns, schema=bs[0].schema)


def buffer_batches(batches: Iterable[pa.RecordBatch], num_rows: int) -> Iterator[pa.RecordBatch]:
    """Join neighbouring batches as long as they have no more than ``num_rows`` rows together."""
    waiting: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        if waiting and count + batch.num_rows > num_rows:
            yield concat_batches(waiting)
            waiting, count = [], 0
        waiting.append(batch)
        count += batch.num_rows
    if waiting:
        yield concat_batches(waiting)


class CachedBatches:
    """Batches that are kept in a temporary file, which goes with this object.

    Args:
        folder: Where to make the file; None for the folder of the system.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        self._folder = Path(mkdtemp(prefix="lance-torch-dataset", dir=folder))
        weakref.finalize(self, rmtree, self._folder, ignore_errors=True)
        self._is_complete = False

    @property
    def is_complete(self) -> bool:
        """True once all batches were kept."""
        return self._is_complete

    def keep(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches and write them; what is not read to its end is not kept."""
        with TemporaryDirectory(dir=self._folder, ignore_cleanup_errors=True) as unfinished:
            path = Path(unfinished) / "batches"
            writer: pa.RecordBatchFileWriter | None = None
            try:
                for batch in batches:
                    if writer is None:
                        writer = pa.ipc.new_file(str(path), batch.schema)
                    writer.write(batch)
                    yield batch
            finally:
                if writer is not None:
                    writer.close()
            if writer is not None:
                path.replace(self._path)
            self._is_complete = True

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches that were kept."""
        if not self._path.exists():
            return
        with pa.memory_map(str(self._path)) as source:
            reader = pa.ipc.open_file(source)
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number)

    @property
    def _path(self) -> Path:
        return self._folder / "cache.arrow"
