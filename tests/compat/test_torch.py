"""PyTorch datasets, held against those of pylance. Without PyTorch, only what says so: ``make test-torch`` runs all."""

import inspect
import sys
from importlib import import_module, util

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.torch.batches import CachedBatches, buffer_batches

needs_torch = pytest.mark.skipif(util.find_spec("torch") is None, reason="PyTorch is not installed")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

ROWS = pa.table(
    {
        "n": pa.array(range(100), pa.int32()),
        "u": pa.array(range(100), pa.uint64()),
        "b": pa.array([number % 3 == 0 for number in range(100)]),
        "f": pa.array([None if number % 7 == 0 else number / 2 for number in range(100)], pa.float32()),
        "v": pa.array([[number, number + 1.5] for number in range(100)], pa.list_(pa.float64(), 2)),
        "t": pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(400, dtype=np.float32).reshape(100, 2, 2)),
    }
)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    made = str(tmp_path_factory.mktemp("torch") / "t")
    lance.write_dataset(ROWS, made, max_rows_per_file=30)
    lance_core.dataset(made).delete("n = 5")
    return made


def both(place, **options):
    """All batches of pylance's and of our dataset."""
    made = [import_module(f"{name}.torch.data").LanceDataset(place, **options) for name in ("lance", "lance_core")]
    return [list(one) for one in made]


def plain(tensor):
    return str(tensor.dtype), repr(tensor.tolist())


def rows_of(batches):
    """Type and values of each column, whatever the bounds of the batches."""
    torch = import_module("torch")
    if isinstance(batches[0], dict):
        return {name: plain(torch.cat([one[name] for one in batches])) for name in batches[0]}
    return plain(torch.cat(batches))


def count_of(batch):
    return len(next(iter(batch.values())) if isinstance(batch, dict) else batch)


OPTIONS = {
    "all columns": {"batch_size": 8},
    "one column": {"batch_size": 8, "columns": ["v"]},
    "expressions": {"batch_size": 50, "columns": {"n": "n * 2", "v": "v"}},
    "filter": {"batch_size": 16, "filter": "n % 3 = 1"},
    "row ids": {"batch_size": 33, "columns": ["n"], "with_row_id": True},
    "rank": {"batch_size": 8, "rank": 1, "world_size": 2},
    "rank, fragments": {"batch_size": 8, "rank": 1, "world_size": 2, "shard_granularity": "fragment"},
    "rank, batches": {"batch_size": 8, "rank": 0, "world_size": 2, "shard_granularity": "batch"},
    "no rank": {"batch_size": 200, "auto_detect_rank": False},
}


@needs_torch
@pytest.mark.parametrize("name", OPTIONS)
def test_batches_hold_the_tensors_of_pylance(place, name):
    theirs, ours = both(place, **OPTIONS[name])
    assert rows_of(ours) == rows_of(theirs)
    assert max(map(count_of, ours)) <= OPTIONS[name]["batch_size"]


@needs_torch
def test_bfloat16_becomes_the_type_of_torch(tmp_path):
    from lance.arrow import bfloat16_array  # noqa: PLC0415 it registers a type

    table = pa.table({"x": bfloat16_array([1.5, None, -2.0])})
    lance.write_dataset(table, tmp_path / "t")
    theirs, ours = both(str(tmp_path / "t"), batch_size=8)
    assert plain(ours[0]) == plain(theirs[0])
    assert "bfloat16" in str(ours[0].dtype)


@needs_torch
def test_samples_and_samplers(place):
    from lance_core.sampler import ShardedFragmentSampler  # noqa: PLC0415
    from lance_core.torch.data import LanceDataset  # noqa: PLC0415

    drawn = [value for batch in LanceDataset(place, 8, columns=["n"], samples=20) for value in batch.tolist()]
    assert len(drawn) == len(set(drawn)) == 20
    shards = [
        {
            value
            for batch in LanceDataset(place, 8, columns=["n"], sampler=ShardedFragmentSampler(rank, 2))
            for value in batch.tolist()
        }
        for rank in range(2)
    ]
    assert shards[0] | shards[1] == set(range(100)) - {5}
    assert not shards[0] & shards[1]


@needs_torch
def test_what_no_tensor_can_hold_is_refused_by_name(tmp_path):
    from lance_core.torch.data import LanceDataset  # noqa: PLC0415

    made = lance_core.write_dataset({"s": ["a"]}, tmp_path / "t")
    with pytest.raises(ValueError, match="'s' of type string"):
        list(LanceDataset(made, 8))
    assert [batch.num_rows for batch in LanceDataset(made, 8, to_tensor_fn=None)] == [1]
    with pytest.raises(InvalidInputError, match="shard_granularity"):
        LanceDataset(made, 8, shard_granularity="row")


@needs_torch
def test_blobs_are_files_for_a_function_of_the_user(tmp_path):
    field = pa.field("blob", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    table = pa.table(
        [pa.array([b"abc", b"", b"de"]).cast(pa.large_binary()), [1, 2, 3]], pa.schema([field, ("n", pa.int64())])
    )
    lance.write_dataset(table, tmp_path / "t", data_storage_version="2.1")

    def read(batch, *, use_blob_api, **_):
        assert use_blob_api
        return [one.read() if hasattr(one, "read") else one for one in batch["blob"]], batch["n"].to_pylist()

    theirs, ours = both(str(tmp_path / "t"), batch_size=2, to_tensor_fn=read)
    assert ours == theirs
    with pytest.raises(NotImplementedError, match="blob"):
        list(import_module("lance_core.torch.data").LanceDataset(tmp_path / "t", 2))


@needs_torch
def test_later_epochs_are_read_from_the_cache(place, monkeypatch):
    from lance_core.torch.data import LanceDataset  # noqa: PLC0415

    dataset = LanceDataset(place, 16, columns=["n"], cache=True)
    next(iter(dataset))  # an epoch that is not finished is not kept
    first = [batch.tolist() for batch in dataset]
    monkeypatch.setattr(dataset, "dataset", None)
    assert [batch.tolist() for batch in dataset] == first
    assert sum(map(len, first)) == 99


@needs_torch
@pytest.mark.parametrize("workers", [0, 2])
def test_loaders_read_each_row_once(place, workers):
    from lance_core.torch.data import LanceDataset, SafeLanceDataset, get_safe_loader  # noqa: PLC0415

    safe = SafeLanceDataset(place)
    assert len(safe) == 99
    assert safe[7] == lance.dataset(place).take([7]).to_pylist()[0]
    assert safe.__getitems__([3, 1]) == lance.dataset(place).take([3, 1]).to_pylist()
    loader = get_safe_loader(safe, batch_size=33, num_workers=workers, collate_fn=list)
    assert sorted(row["n"] for batch in loader for row in batch) == [*range(5), *range(6, 100)]
    stream = get_safe_loader(LanceDataset(place, 16, columns=["n"]), batch_size=None, num_workers=workers)
    assert sorted(value for batch in stream for value in batch.tolist()) == [*range(5), *range(6, 100)]


@needs_torch
def test_a_dataset_is_read_ahead_in_another_process():
    from lance_core.torch.async_dataset import async_dataset  # noqa: PLC0415

    with async_dataset(lambda: [1, 2, 3]) as ahead:
        assert [list(ahead), list(ahead)] == [[1, 2, 3]] * 2

    def fail():
        raise OSError("gone")

    with async_dataset(fail) as ahead, pytest.raises(OSError, match="gone"):
        list(ahead)


@needs_torch
@pytest.mark.parametrize("module", ["data", "dist", "async_dataset"])
def test_names_and_arguments_are_those_of_pylance(module):
    theirs, ours = import_module(f"lance.torch.{module}"), import_module(f"lance_core.torch.{module}")
    others = {"get_safe_loader", "concat_batches", "TensorDataset", "preferred_device"}
    for name, found in vars(theirs).items():
        if not inspect.isroutine(found) and not inspect.isclass(found):
            continue
        if name.startswith("_") or (found.__module__ != theirs.__name__ and name not in others):
            continue
        expected = set(inspect.signature(found).parameters) - {"args", "kwargs"}
        assert expected <= set(inspect.signature(getattr(ours, name)).parameters), name


@pytest.mark.parametrize("name", ["bench_utils", "distance", "kmeans"])
def test_modules_that_search_are_refused_by_name(name):
    with pytest.raises(ImportError, match=f"lance_core.torch.{name} is not supported"):
        import_module(f"lance_core.torch.{name}")
    with pytest.raises(UnsupportedError):
        import_module(f"lance_core.torch.{name}")


def test_without_torch_an_error_names_the_extra(monkeypatch):
    for name in [one for one in sys.modules if one.startswith("lance_core.torch.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r"lance-dagster\[torch\]"):
        import_module("lance_core.torch.data")
    from lance_core.torch import preferred_device  # noqa: PLC0415

    with pytest.raises(ImportError, match=r"lance-dagster\[torch\]"):
        preferred_device()


def test_small_batches_are_joined():
    batches = pa.table({"a": range(10)}).to_batches(max_chunksize=3)
    assert [one.num_rows for one in buffer_batches(batches, 6)] == [6, 4]
    assert [one.num_rows for one in buffer_batches(batches, 2)] == [3, 3, 3, 1]
    assert pa.Table.from_batches(list(buffer_batches(batches, 7))) == pa.table({"a": range(10)})
    assert list(buffer_batches([], 7)) == []


def test_a_cache_that_was_not_filled_holds_nothing(tmp_path):
    batches = pa.table({"a": range(10)}).to_batches(max_chunksize=3)
    cache = CachedBatches(tmp_path)
    next(cache.keep(batches))
    assert not cache.is_complete
    assert list(cache) == []
    assert list(cache.keep(batches)) == batches
    assert list(cache) == batches
    assert cache.is_complete
    del cache
    assert list(tmp_path.iterdir()) == []
