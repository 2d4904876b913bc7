"""How many requests and bytes an object store would see; counts are exact, so that a change for the worse shows."""

import numpy as np
import pyarrow as pa
import pytest

import lance_core
from lance_core.testing.counting_store import open_counting

N = 60_000
ROWS = [17, 20_000, 20_001, 59_999]


def column(kind):
    rng = np.random.default_rng(1)
    match kind:
        case "numbers":
            return pa.array(rng.integers(0, 1 << 40, N))
        case "nullable":
            return pa.array(rng.integers(0, 1000, N), mask=rng.random(N) < 0.1)
        case "dictionary":
            return pa.array([f"name {one}" for one in rng.integers(0, 20, N)])
        case "texts":
            return pa.array([f"{one:x}" for one in rng.integers(0, 1 << 60, N)])
        case "constant":
            return pa.array(np.full(N, 7))
        case "vectors":
            return pa.FixedSizeListArray.from_arrays(pa.array(rng.random(N * 100, np.float32)), 100)
        case "blobs":
            return pa.array([bytes([one % 256]) * 500 for one in range(N)])
        case "lists":
            sizes = rng.integers(0, 4, N)
            offsets = np.append(0, np.cumsum(sizes)).astype(np.int32)
            return pa.ListArray.from_arrays(offsets, rng.integers(0, 1 << 40, int(sizes.sum())))


# For each layout the requests and KiB, at most, of four single rows, of the same once more, of 2,000 rows in the middle
# and of the first ten; each but the second with a table that was just opened, the end of the file included.
LAYOUTS = {
    "numbers": {"take": (5, 128), "again": (3, 24), "range": (3, 120), "head": (3, 100)},
    "nullable": {"take": (5, 180), "again": (3, 100), "range": (3, 120), "head": (3, 100)},
    "dictionary": {"take": (5, 150), "again": (3, 60), "range": (3, 120), "head": (3, 100)},
    "texts": {"take": (5, 140), "again": (3, 50), "range": (3, 150), "head": (3, 120)},
    "constant": {"take": (1, 66), "again": (0, 0), "range": (1, 66), "head": (1, 66)},
    "vectors": {"take": (4, 112), "again": (3, 2), "range": (2, 864), "head": (2, 82)},
    "blobs": {"take": (5, 240), "again": (3, 90), "range": (3, 120), "head": (3, 100)},
    "lists": {"take": (6, 120), "again": (3, 40), "range": (4, 136), "head": (4, 110)},
}


def _counted(counts, work):
    counts.clear()
    work()
    return counts.num_requests, -(-counts.num_bytes // 1024)


VERSIONS = [("2.2", kind) for kind in LAYOUTS] + [("2.1", kind) for kind in LAYOUTS if kind != "constant"]


@pytest.mark.parametrize(("version", "kind"), VERSIONS)
def test_requests_of_each_layout(tmp_path, version, kind):
    lance_core.write_dataset(pa.table({"c": column(kind)}), tmp_path / "t", data_storage_version=version)
    found = {}
    table, counts = open_counting(tmp_path / "t")
    found["take"] = _counted(counts, lambda: table.take(ROWS))
    found["again"] = _counted(counts, lambda: table.take(ROWS))
    table, counts = open_counting(tmp_path / "t")
    found["range"] = _counted(counts, lambda: table.to_table(limit=2000, offset=30_000))
    table, counts = open_counting(tmp_path / "t")
    found["head"] = _counted(counts, lambda: table.head(10))
    for work, limits in LAYOUTS[kind].items():
        assert all(np.less_equal(found[work], limits)), (work, found)


@pytest.mark.parametrize("kind", LAYOUTS)
def test_what_is_requested_and_what_is_mapped_are_the_same(tmp_path, kind):
    lance_core.write_dataset(pa.table({"c": column(kind)}), tmp_path / "t")
    mapped, (requested, _) = lance_core.dataset(tmp_path / "t"), open_counting(tmp_path / "t")
    scattered = np.unique(np.random.default_rng(5).integers(0, N, 300)).tolist()
    for rows in (ROWS, scattered, [5]):
        assert requested.take(rows).equals(mapped.take(rows))
        assert requested.take(rows).equals(pa.table({"c": column(kind)}).take(rows))
    assert requested.to_table().equals(mapped.to_table())


def test_all_columns_share_requests(tmp_path):
    table = pa.table({kind: column(kind) for kind in LAYOUTS})
    lance_core.write_dataset(table, tmp_path / "t")
    opened, counts = open_counting(tmp_path / "t")
    assert (counts.num_requests, len(counts.calls)) == (1, 1)  # the manifest
    requests, kib = _counted(counts, lambda: opened.take(ROWS))
    assert len(counts.calls) == 3  # the end of the file, what tells where rows are, the rows
    assert requests <= 17
    assert kib <= 680  # 13 ranges of one or two blocks; which adjoin depends on where pages happen to lie
    requests, kib = _counted(counts, lambda: opened.take(ROWS))
    assert len(counts.calls) == 1
    assert requests <= 12
    mapped = lance_core.dataset(tmp_path / "t")
    for some in (opened, mapped):  # columns that are encoded alike share what is decoded
        found = some.to_table(limit=2000, offset=30_123)
        found.validate(full=True)
        assert found.equals(table.slice(30_123, 2000))
        assert some.take(ROWS).equals(table.take(ROWS))
    requests, kib = _counted(counts, lambda: opened.to_table(columns=["numbers"]))
    assert requests <= 3
    assert kib <= N * 5.2 // 1024 + 64  # 41 bits a number


def test_filters_read_other_columns_where_rows_match(tmp_path):
    table = pa.table({"number": np.arange(N), "vectors": column("vectors"), "texts": column("texts")})
    lance_core.write_dataset(table, tmp_path / "t")
    opened, counts = open_counting(tmp_path / "t")
    found = opened.to_table(filter="number in (17, 20000, 59999)")
    assert found.num_rows == 3
    assert counts.num_requests <= 16
    assert counts.num_bytes < 1 << 20  # the numbers and a few chunks, not 24 MB of vectors


def test_deletions_are_read_once(tmp_path):
    table = lance_core.write_dataset(pa.table({"number": np.arange(N)}), tmp_path / "t", max_rows_per_file=N // 4)
    table.delete("number % 10 = 3")
    live = np.arange(N)[np.arange(N) % 10 != 3]
    opened, counts = open_counting(tmp_path / "t")
    rows = [0, 3, N // 2, len(live) - 1]
    for _ in range(2):
        counts.clear()
        assert opened.take(rows)["number"].to_pylist() == live[rows].tolist()
    assert len(counts.calls) == 3, "three fragments have the rows; only their data files are read again"
