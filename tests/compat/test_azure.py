"""Both libraries change one table on Azure, as Microsoft's emulator plays it; skipped where that is not installed."""

from concurrent.futures import ThreadPoolExecutor

import lance
import pyarrow as pa

import lance_core

WRITERS, TURNS = 4, 10


def test_both_append_to_one_table(azurite):
    uri, options = f"{azurite.uri}/t.lance", azurite.storage_options

    def append(writer):
        tool = lance if writer % 2 else lance_core
        for turn in range(TURNS):
            tool.write_dataset(pa.table({"x": [100 * writer + turn]}), uri, mode="append", storage_options=options)

    lance_core.write_dataset(pa.table({"x": [-1]}), uri, storage_options=options)
    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(append, range(WRITERS)))
    expected = [-1, *(100 * writer + turn for writer in range(WRITERS) for turn in range(TURNS))]
    for tool in (lance, lance_core):
        dataset = tool.dataset(uri, storage_options=options)
        assert sorted(dataset.to_table()["x"].to_pylist()) == expected
        assert dataset.version == 1 + WRITERS * TURNS
    assert lance_core.dataset(uri, storage_options=options).verify(level="full").is_ok


def test_each_reads_what_the_other_changed(azurite):
    uri, options = f"{azurite.uri}/t.lance", azurite.storage_options
    lance_core.write_dataset(pa.table({"x": range(100)}), uri, storage_options=options)
    lance.dataset(uri, storage_options=options).delete("x < 10")
    ours = lance_core.dataset(uri, storage_options=options)
    ours.update({"x": "x + 1000"}, where="x < 20")
    ours.tags.create("t", ours.version)
    theirs = lance.dataset(uri, version="t", storage_options=options)
    assert sorted(theirs.to_table()["x"].to_pylist()) == [*range(20, 100), *range(1010, 1020)]
