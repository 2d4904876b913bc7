"""PyTorch datasets over Lance datasets: names and arguments as in pylance's ``lance.torch.data``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from lance_core.common.deprecation import warn_deprecated
from lance_core.dataset import LanceDataset as Table
from lance_core.dataset import dataset as open_dataset
from lance_core.errors import InvalidInputError
from lance_core.sampler import FullScanSampler, Sampler, ShardedBatchSampler, ShardedFragmentSampler, maybe_sample
from lance_core.torch.backend import torch
from lance_core.torch.batches import CachedBatches, buffer_batches, concat_batches
from lance_core.torch.dist import get_global_rank, get_global_world_size
from lance_core.torch.tensors import to_tensors

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

__all__ = ["LanceDataset", "SafeLanceDataset", "TensorDataset", "ToTensorFn", "concat_batches", "get_safe_loader"]


class ToTensorFn(Protocol):
    """Turns a batch into what a `LanceDataset` yields."""

    def __call__(
        self,
        batch: pa.RecordBatch | dict[str, Any],
        *,
        hf_converter: Any = None,
        use_blob_api: bool = False,
    ) -> Any:
        """Convert a batch; with blobs it is a dict of arrays, and of lists of files for columns of blobs."""
        ...


class TensorDataset(torch.utils.data.Dataset):  # pyright: ignore[reportUntypedBaseClass]
    """Batches of the rows of a tensor.

    Args:
        data: Tensor or numpy array, shape (rows, ...).
        batch_size: Rows in a batch.
    """

    def __init__(self, data: Any, batch_size: int) -> None:
        super().__init__()
        self._data: Any = torch.from_numpy(data) if isinstance(data, np.ndarray) else data
        self._batch_size = batch_size

    def __repr__(self) -> str:
        return "LanceTensorDataset"

    def __len__(self) -> int:
        return math.ceil(len(self._data) / self._batch_size)

    def __getitem__(self, idx: int) -> Any:
        if not 0 <= idx < len(self):
            raise IndexError(f"batch {idx} of {len(self)}")
        return self._data[idx * self._batch_size : (idx + 1) * self._batch_size]


class LanceDataset(torch.utils.data.IterableDataset):  # pyright: ignore[reportUntypedBaseClass]
    """Batches of tensors from a Lance dataset.

    In workers of a DataLoader and under ``torch.distributed`` each worker reads its own fragments.

    Args:
        dataset: A `lance_core.LanceDataset`, or its address.
        batch_size: Rows in a batch, at most.
        dataset_options: Arguments of `lance_core.dataset`, if an address is given.
        columns: Columns to read, all if None; a dict gives names to SQL expressions.
        filter: Read only rows that match this SQL.
        samples: Read so many rows, chosen at random each time; 0 or None for all of them.
        cache: True or a folder: keep the batches in a temporary file for the next epochs.
        with_row_id: Add a column ``_rowid``; columns of blobs imply it.
        rank: Deprecated: number of this process; give a sampler.
        world_size: Deprecated: how many processes there are.
        shard_granularity: What a worker gets a share of: ``"fragment"`` or ``"batch"``; None for fragments, or all
            rows if there is no rank.
        batch_readahead: As of `lance_core.LanceDataset.scanner`.
        to_tensor_fn: Turns batches into tensors; None to get record batches.
        sampler: Chooses and reads the rows; see `lance_core.sampler`.
        auto_detect_rank: Ask PyTorch for rank and world size where they are not given.
    """

    def __init__(
        self,
        dataset: Table | str | os.PathLike[str],
        batch_size: int,
        *,
        dataset_options: Mapping[str, Any] | None = None,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        filter: str | None = None,  # noqa: A002 the name in pylance
        samples: int | None = 0,
        cache: str | Path | bool | None = None,
        with_row_id: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        shard_granularity: Literal["fragment", "batch"] | None = None,
        batch_readahead: int = 16,
        to_tensor_fn: ToTensorFn | None = to_tensors,
        sampler: Sampler | None = None,
        auto_detect_rank: bool = True,
    ) -> None:
        super().__init__()
        if shard_granularity not in (None, "fragment", "batch"):
            raise InvalidInputError(f"shard_granularity is 'fragment' or 'batch', not {shard_granularity!r}")
        if rank is not None and world_size is not None:
            warn_deprecated("rank and world_size", instead="give a sampler")
        self.dataset = dataset if isinstance(dataset, Table) else open_dataset(dataset, **(dataset_options or {}))
        self.batch_size, self.batch_readahead = batch_size, batch_readahead
        self.columns, self.filter, self.samples = columns, filter, samples
        self.rank, self.world_size, self.shard_granularity = rank, world_size, shard_granularity
        self.sampler: Sampler | None = sampler
        self.cache = cache
        self._blob_columns = self._find_blob_columns()
        self.with_row_id = with_row_id or bool(self._blob_columns)
        self._to_tensor_fn = to_tensor_fn
        self._auto_detect_rank = auto_detect_rank
        self._cached: CachedBatches | None = None

    def __repr__(self) -> str:
        return f"LanceTorchDataset({self.dataset.uri}, size={self.samples})"

    def __getstate__(self) -> dict[str, Any]:
        """Leave the cache behind: its file is this process's."""
        return {**self.__dict__, "_cached": None}

    @property
    def schema(self) -> pa.Schema:
        """Schema of the columns; with SQL expressions, of what they become."""
        if not self.columns:
            return self.dataset.schema
        return self.dataset.scanner(self.columns, limit=0).projected_schema

    def __iter__(self) -> Iterator[Any]:
        """Yield batches, converted by ``to_tensor_fn``."""
        for batch in self._batches():
            content = self._with_blobs(batch) if self._blob_columns else batch
            if self._to_tensor_fn is None:
                yield content
            else:
                yield self._to_tensor_fn(content, hf_converter=None, use_blob_api=bool(self._blob_columns))

    def _batches(self) -> Iterable[pa.RecordBatch]:
        if self._cached is not None and self._cached.is_complete:
            return self._cached
        batches = buffer_batches(self._read(), self.batch_size)
        if not self.cache:
            return batches
        self._cached = CachedBatches(None if self.cache is True else self.cache)
        return self._cached.keep(batches)

    def _read(self) -> Iterator[pa.RecordBatch]:
        columns = self._plain_columns()
        if self.samples:
            names = list(columns or self.dataset.schema.names)
            return maybe_sample(self.dataset, self.samples, names, batch_size=self.batch_size, filt=self.filter)
        return (self.sampler or self._own_sampler())(
            self.dataset,
            columns=columns,
            filter=self.filter,
            batch_size=self.batch_size,
            with_row_id=self.with_row_id,
            batch_readahead=self.batch_readahead,
        )

    def _own_sampler(self) -> Sampler:
        detects = self._auto_detect_rank
        rank = get_global_rank() if self.rank is None and detects else self.rank
        world_size = get_global_world_size() if self.world_size is None and detects else self.world_size
        if rank is None or world_size is None:
            if self.shard_granularity is None:
                return FullScanSampler()
            raise InvalidInputError("shard_granularity needs a rank and a world_size: give them, or auto_detect_rank")
        make = ShardedBatchSampler if self.shard_granularity == "batch" else ShardedFragmentSampler
        return make(rank, world_size)

    def _plain_columns(self) -> Sequence[str] | Mapping[str, str] | None:
        """Columns to scan: those that are no blobs."""
        if not self._blob_columns or isinstance(self.columns, dict):
            return self.columns
        return [name for name in self.columns or self.dataset.schema.names if name not in self._blob_columns]

    def _find_blob_columns(self) -> list[str]:
        """Names of the columns whose blobs are given as files."""
        schema = self.dataset.schema
        names = [] if isinstance(self.columns, dict) else self.columns or schema.names
        fields = [schema.field(name) for name in names if name in schema.names]
        return [field.name for field in fields if (field.metadata or {}).get(b"lance-encoding:blob") == b"true"]

    def _with_blobs(self, batch: pa.RecordBatch) -> dict[str, Any]:
        """Return the columns of a batch by name, and files for the blobs of its rows."""
        ids = batch.column("_rowid")
        blobs = {name: self.dataset.take_blobs(name, ids=ids) for name in self._blob_columns}
        return {**{name: batch.column(name) for name in batch.schema.names}, **blobs}


class SafeLanceDataset(torch.utils.data.Dataset):  # pyright: ignore[reportUntypedBaseClass]
    """Rows of a Lance dataset by number, as dicts; each worker opens the dataset for itself.

    Args:
        uri: Address of the dataset.
        dataset_options: Arguments of `lance_core.dataset`.
    """

    def __init__(self, uri: str | os.PathLike[str], *, dataset_options: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self.uri = uri
        self.dataset_options = dict(dataset_options or {})
        self._ds: Table | None = None
        self._len = open_dataset(uri, **self.dataset_options).count_rows()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_ds": None}

    def __len__(self) -> int:
        return self._len

    def __getitem__(self, idx: int) -> dict[str, Any]:
        return self.__getitems__([idx])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Return several rows, in the order of the indices."""
        if self._ds is None:
            self._ds = open_dataset(self.uri, **self.dataset_options)
        return self._ds.take(list(indices)).to_pylist()


def get_safe_loader(dataset: Any, batch_size: int = 32, num_workers: int = 4, **kwargs: Any) -> Any:
    """Make a DataLoader whose workers are spawned and live as long as it does.

    Args:
        dataset: What to load, such as a `SafeLanceDataset`.
        batch_size: Rows in a batch.
        num_workers: Processes; 0 to load in this one.
        **kwargs: Arguments of ``torch.utils.data.DataLoader``.

    Returns:
        A ``torch.utils.data.DataLoader``.
    """
    processes: dict[str, Any] = {}
    if num_workers:  # PyTorch refuses these arguments without workers
        processes = {
            "persistent_workers": True,
            "multiprocessing_context": torch.multiprocessing.get_context("spawn"),
        }
    given = {"batch_size": batch_size, "num_workers": num_workers, **processes, **kwargs}
    return torch.utils.data.DataLoader(dataset, **given)
