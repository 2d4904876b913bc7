"""Complete data files in a thread while the next one is encoded, on stores that are far away.

The last parts of a file and the request that makes it appear take tens of milliseconds or more. One file may be
completed while one is written, so memory holds the parts in flight of two files.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

from lance_core.store.tasks import wait_for
from lance_core.table.locations import begin_puts, objects_at_once

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from lance_core.store.base import ObjectWriter, PendingRead, Store


class Completion:
    """Files of one writer that are being completed.

    Args:
        store: Where the files are written. On stores that answer at once, files are completed when they are finished.
    """

    def __init__(self, store: Store) -> None:
        self._is_far = objects_at_once(store) > 1
        self._pool: ThreadPoolExecutor | None = None
        self._pending: deque[Future[int]] = deque()

    @property
    def num_pending(self) -> int:
        """Files whose completion nobody has waited for."""
        return len(self._pending)

    def sink(self, sink: ObjectWriter) -> ObjectWriter:
        """Return a writer whose ``commit`` does not wait on a store that is far away."""
        return _CompletedLater(self, sink) if self._is_far else sink

    def submit(self, sink: ObjectWriter) -> None:
        """Complete a file in a thread, two at the same time."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(2, thread_name_prefix="lance_core_completion")
        self._pending.append(self._pool.submit(sink.commit))

    def wait(self, *, leave: int = 0) -> None:
        """Wait until at most so many files are being completed.

        Raises:
            Exception: Of the first file that failed.
        """
        while len(self._pending) > leave:
            wait_for(self._pending.popleft())
        if not self._pending:
            self.close()

    def close(self) -> None:
        """Let all files be completed or fail; errors are nobody's business any more."""
        self._pending.clear()
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()


class _CompletedLater:
    """A file being written; ``commit`` hands it over to `Completion`."""

    def __init__(self, completion: Completion, sink: ObjectWriter) -> None:
        self._completion = completion
        self._sink = sink
        self._size = 0

    def write(self, data: bytes | memoryview | pa.Buffer) -> None:
        self._size += memoryview(data).nbytes
        self._sink.write(data)

    def commit(self) -> int:
        self._completion.submit(self._sink)
        return self._size

    def abort(self) -> None:
        self._sink.abort()


class Uploads:
    """Small files that are on their way, at most as many as the store answers at once.

    Args:
        store: Where they are written. On stores that answer at once, they are there when they were put.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._at_once = objects_at_once(store)
        self._pending: deque[PendingRead[object]] = deque()

    def put(self, objects: Sequence[tuple[str, bytes]]) -> None:
        """Write whole objects, given by path and content.

        Raises:
            Exception: Of one that failed, perhaps of those before.
        """
        self._pending += begin_puts(self._store, objects)
        while len(self._pending) > self._at_once:
            self._pending.popleft().result()

    def wait(self) -> None:
        """Wait until all are there; raises what the first one failed with."""
        while self._pending:
            self._pending.popleft().result()

    def end(self) -> None:
        """Wait until all are there or have failed; errors are nobody's business any more."""
        while self._pending:
            with suppress(Exception):
                self._pending.popleft().result()
