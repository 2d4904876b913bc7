"""Reading the rows of a dataset in portions, for processes that share the work. Names and arguments as in pylance."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from lance_core.common.signatures import with_options
from lance_core.dataset import LanceDataset
from lance_core.dataset import dataset as open_dataset
from lance_core.errors import InvalidInputError
from lance_core.scanner import ScanOptions

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from lance_core.fragment import LanceFragment

__all__ = [
    "FragmentSampler",
    "FullScanSampler",
    "Sampler",
    "ShardedBatchSampler",
    "ShardedFragmentSampler",
    "maybe_sample",
]

_BATCH_ROWS = 128
_POOL_BATCHES = 16
"""Batches of a filtered scan that are mixed with one another."""


class Sampler(ABC):
    """Yields record batches of a dataset; called with the dataset and the arguments of the scan."""

    @abstractmethod
    @with_options(ScanOptions)
    def __call__(
        self,
        dataset: LanceDataset,
        *,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        filter: str | None = None,  # noqa: A002 the name in pylance
        **options: Unpack[ScanOptions],
    ) -> Iterator[pa.RecordBatch]:
        """Yield record batches.

        Args:
            dataset: What to read.
            columns: As of `LanceDataset.scanner`.
            filter: As of `LanceDataset.scanner`.
            **options: See `lance_core.scanner.ScanOptions`; batches have 128 rows if ``batch_size`` is not given.
        """
        raise NotImplementedError


class FragmentSampler(Sampler):
    """Reads whole fragments, in an order that subclasses decide."""

    @with_options(ScanOptions)
    def __call__(
        self,
        dataset: LanceDataset,
        *,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        filter: str | None = None,  # noqa: A002 the name in pylance
        **options: Unpack[ScanOptions],
    ) -> Iterator[pa.RecordBatch]:
        """Yield the batches of each fragment."""
        given: ScanOptions = {"batch_size": _BATCH_ROWS, **options}
        for fragment in self.iter_fragments(dataset):
            yield from fragment.to_batches(columns, filter, **given)

    @abstractmethod
    def iter_fragments(self, dataset: LanceDataset) -> Iterable[LanceFragment]:
        """Return the fragments to read, in their order."""
        raise NotImplementedError


class FullScanSampler(FragmentSampler):
    """Reads all fragments, in the order of the table."""

    def iter_fragments(self, dataset: LanceDataset) -> Iterable[LanceFragment]:
        """Return all fragments."""
        return dataset.get_fragments()


class _Shard:
    """Rank of this process among several, and the order of its work.

    Args:
        rank: Number of this process, from 0.
        world_size: How many there are.
        randomize: Mix the order, in the same way in all processes.
        seed: Where the mixing begins.
    """

    def __init__(self, rank: int, world_size: int, randomize: bool = False, seed: int = 0) -> None:
        if not 0 <= rank < world_size:
            raise InvalidInputError(f"'rank' must be between 0 and world_size - 1, not {rank} of {world_size}")
        self._rank, self._world_size = rank, world_size
        self._randomize, self._seed, self._epoch = randomize, seed, 0

    def set_epoch(self, epoch: int) -> None:
        """Choose another order, which all processes must choose."""
        self._epoch = epoch

    @classmethod
    def from_torch(cls, randomize: bool = False, seed: int = 0) -> Any:
        """Take rank and world size from ``torch.distributed``.

        Raises:
            ImportError: There is no torch.
        """
        from importlib import import_module  # noqa: PLC0415 torch is no dependency

        distributed = import_module("torch.distributed")
        return cls(distributed.get_rank(), distributed.get_world_size(), randomize, seed)

    def _mine(self, count: int) -> list[int]:
        """Return the numbers of the portions for this process, in order."""
        order = np.arange(count)
        if self._randomize:
            np.random.default_rng([self._seed, self._epoch]).shuffle(order)
        return order[self._rank :: self._world_size].tolist()


class ShardedFragmentSampler(_Shard, FragmentSampler):
    """Reads every so many-th fragment: each process reads whole fragments, which is the cheapest way to share."""

    def iter_fragments(self, dataset: LanceDataset) -> Iterable[LanceFragment]:
        """Return the fragments of this process."""
        fragments = dataset.get_fragments()
        return [fragments[number] for number in self._mine(len(fragments))]


class ShardedBatchSampler(_Shard, Sampler):
    """Reads every so many-th batch of rows.

    With a filter each process reads all that matches and keeps its share.
    """

    @with_options(ScanOptions)
    def __call__(
        self,
        dataset: LanceDataset,
        *,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        filter: str | None = None,  # noqa: A002 the name in pylance
        **options: Unpack[ScanOptions],
    ) -> Iterator[pa.RecordBatch]:
        """Yield the batches of this process."""
        if filter is not None:
            yield from self._filtered(dataset, columns, filter, options)
            return
        batch_size = options.get("batch_size") or _BATCH_ROWS
        given: ScanOptions = {**options, "batch_size": batch_size}
        for number in self._mine(-(-dataset.count_rows() // batch_size)):
            yield from dataset.scanner(columns, None, batch_size, number * batch_size, **given).to_batches()

    def _filtered(
        self,
        dataset: LanceDataset,
        columns: Sequence[str] | Mapping[str, str] | None,
        condition: str,
        options: ScanOptions,
    ) -> Iterator[pa.RecordBatch]:
        """Every so many-th batch of what matches; mixed among a few neighbours only, for their number is not known."""
        given: ScanOptions = {"batch_size": _BATCH_ROWS, **options, "strict_batch_size": True}
        pool: list[pa.RecordBatch] = []
        choose = np.random.default_rng([self._seed, self._epoch])
        for number, batch in enumerate(dataset.scanner(columns, condition, **given).to_batches()):
            if number % self._world_size != self._rank:
                continue
            if not self._randomize:
                yield batch
                continue
            pool.append(batch)
            if len(pool) >= _POOL_BATCHES:
                yield pool.pop(int(choose.integers(len(pool))))
        while pool:
            yield pool.pop(int(choose.integers(len(pool))))


def maybe_sample(  # noqa: PLR0917 positional as in pylance
    dataset: str | os.PathLike[str] | LanceDataset,
    n: int,
    columns: Sequence[str] | str,
    batch_size: int = 10240,
    max_takes: int = 2048,
    filt: str | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read rows that are chosen at random; all of them if there are no more than asked for.

    Args:
        dataset: The dataset or its address.
        n: How many rows.
        columns: Names of columns.
        batch_size: Rows in a batch.
        max_takes: Ranges of neighbouring rows that are read, at most; fewer are cheaper, and less random.
        filt: Choose among the rows that match: SQL text.
    """
    table = dataset if isinstance(dataset, LanceDataset) else open_dataset(dataset)
    names = [columns] if isinstance(columns, str) else list(columns)
    given: ScanOptions = {"batch_size": batch_size}
    total = table.count_rows(filt)
    if total <= n:
        yield from table.scanner(names, filt, **given).to_batches()
        return
    choose = np.random.default_rng()
    if filt is not None:
        positions = np.sort(choose.choice(total, n, replace=False))
        offset_rows = table.to_table(columns=["_rowoffset"], filter=filt).column(0).to_numpy()[positions]
    else:
        length = -(-n // max_takes)
        length = length if -(-n // length) <= total // length else 1
        shift = choose.integers(total % length + 1)  # so that the last rows have their chance, too
        starts = np.sort(choose.choice(total // length, -(-n // length), replace=False)) * length + shift
        offset_rows = (starts[:, None] + np.arange(length)).ravel()[:n]
    yield from table.take(offset_rows.astype(np.int64), names).to_batches(max_chunksize=batch_size)
