"""Samplers: portions of a dataset for processes that share the work."""

import sys
import types

import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import InvalidInputError
from lance_core.sampler import FullScanSampler, ShardedBatchSampler, ShardedFragmentSampler, maybe_sample

N = 100


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    place = tmp_path_factory.mktemp("samples") / "t"
    made = lance_core.write_dataset(pa.table({"a": range(N), "b": range(N)}), place, max_rows_per_file=16)
    made.delete("a = 5")
    return made


LIVE = [one for one in range(N) if one != 5]


def values(batches):
    return [value for batch in batches for value in batch.column("a").to_pylist()]


def test_a_full_scan_reads_all_rows_in_order(table):
    batches = list(FullScanSampler()(table, batch_size=10, columns=["a"], with_row_id=True))
    assert values(batches) == LIVE
    assert batches[0].schema.names == ["a", "_rowid"]
    assert max(batch.num_rows for batch in batches) <= 10


@pytest.mark.parametrize("kind", [ShardedFragmentSampler, ShardedBatchSampler])
@pytest.mark.parametrize("randomize", [False, True])
@pytest.mark.parametrize("condition", [None, "a % 3 = 0"])
def test_processes_share_all_rows_and_no_row_twice(table, kind, randomize, condition):
    shares = [
        values(kind(rank, 3, randomize=randomize, seed=7)(table, batch_size=4, columns=["a"], filter=condition))
        for rank in range(3)
    ]
    expected = [one for one in LIVE if condition is None or one % 3 == 0]
    assert sorted(value for share in shares for value in share) == expected
    assert all(shares)


@pytest.mark.parametrize("kind", [ShardedFragmentSampler, ShardedBatchSampler])
def test_epochs_choose_orders_that_can_be_had_again(table, kind):
    sampler = kind(0, 1, randomize=True, seed=3)
    orders = []
    for epoch in (0, 1, 0):
        sampler.set_epoch(epoch)
        orders.append(values(sampler(table, batch_size=4, columns=["a"])))
    assert orders[0] == orders[2]
    assert orders[0] != orders[1]
    assert orders[0] != LIVE


def test_wrong_ranks_are_refused():
    with pytest.raises(InvalidInputError, match="rank"):
        ShardedBatchSampler(3, 3)


def test_rank_comes_from_torch(table, monkeypatch):
    torch = types.ModuleType("torch")
    distributed = types.ModuleType("torch.distributed")
    distributed.get_rank, distributed.get_world_size = lambda: 1, lambda: 2
    torch.distributed = distributed
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "torch.distributed", distributed)
    found = values(ShardedFragmentSampler.from_torch()(table))
    assert found == values(ShardedFragmentSampler(1, 2)(table))


@pytest.mark.parametrize("condition", [None, "a >= 50"])
@pytest.mark.parametrize("count", [1, 20, 1000])
def test_samples_have_as_many_rows_as_there_are(table, condition, count):
    there = [one for one in LIVE if condition is None or one >= 50]
    found = values(maybe_sample(table, count, ["a"], batch_size=8, filt=condition))
    assert len(found) == min(count, len(there))
    assert set(found) <= set(there)
    assert len(set(found)) == len(found)


def test_samples_of_few_ranges_are_complete(table):
    found = values(maybe_sample(table.uri, 20, "a", max_takes=4))
    assert len(found) == 20
