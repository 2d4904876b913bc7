"""A dataset that is read ahead in one process of its own, which lives as long as the dataset does."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from queue import Empty
from typing import TYPE_CHECKING, Any

from lance_core.torch.backend import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

__all__ = ["AsyncDataset", "async_dataset"]

_LOOK_SECONDS = 0.5


def _work(dataset_creator: Callable[[], Any], queue: Any, shutdown: Any) -> None:
    """Put items, and None behind the last one of each epoch, until told to stop; an error ends the work."""
    try:
        dataset = dataset_creator()
        while not shutdown.is_set():
            for item in dataset:
                if shutdown.is_set():
                    return
                queue.put(item)
            queue.put(None)
    except BaseException as error:  # noqa: BLE001 the reader raises it
        queue.put(_Failure(error))


class _Failure:
    """An error on its way to the reader."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class AsyncDataset(torch.utils.data.IterableDataset):  # pyright: ignore[reportUntypedBaseClass]
    """Items of a dataset that one other process makes; it goes on with the next epoch at once.

    Args:
        dataset_creator: Makes the dataset, in the other process.
        queue_size: Items that may wait.
    """

    def __init__(self, dataset_creator: Callable[[], Any], *, queue_size: int = 4) -> None:
        super().__init__()
        context = torch.multiprocessing.get_context()
        self.dataset_creator = dataset_creator
        self.queue = context.Queue(maxsize=queue_size)
        self.shutdown = context.Event()
        self.worker: Any = context.Process(target=_work, args=(dataset_creator, self.queue, self.shutdown), daemon=True)
        self.started = False

    def __iter__(self) -> Iterator[Any]:
        """Yield the items of one epoch.

        Raises:
            RuntimeError: The other process ended.
        """
        if not self.started:
            self.worker.start()
            self.started = True
        while True:
            try:
                item = self.queue.get(timeout=_LOOK_SECONDS)
            except Empty:
                if self.worker.is_alive():
                    continue
                raise RuntimeError("the process that reads the dataset ended") from None
            if isinstance(item, _Failure):
                raise item.error
            if item is None:
                return
            yield item

    def close(self) -> None:
        """End the other process."""
        self.shutdown.set()
        if self.started:
            while self.worker.is_alive():
                with suppress(Empty):
                    self.queue.get(timeout=_LOOK_SECONDS)
            self.worker.join()
        self.queue.close()


@contextmanager
def async_dataset(dataset_creator: Callable[[], Any], *, queue_size: int = 4) -> Generator[AsyncDataset]:
    """Open an `AsyncDataset` and close it at the end; arguments as there."""
    opened = AsyncDataset(dataset_creator, queue_size=queue_size)
    try:
        yield opened
    finally:
        opened.close()
