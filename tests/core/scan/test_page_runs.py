"""Pages of one leaf that are encoded alike in small files are decoded as one page: rows are those of each file."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_core import dataset, write_dataset
from lance_core.errors import CorruptDataError
from lance_core.file.read import alike_files, page_runs, plan, several_files
from lance_core.store.local_reader import LocalReader

STRUCT = pa.struct([("a", pa.int16()), ("b", pa.list_(pa.string()))])
COLUMNS = {
    "number": lambda rng, n: pa.array(rng.integers(0, 1 << int(rng.integers(1, 40)), n), pa.int64()),
    "gap": lambda rng, n: pa.array(rng.random(n), mask=rng.random(n) < rng.choice([0, 0.3, 1])),
    "few": lambda rng, n: pa.array(rng.choice(["red", "green", "", "a blue one"][: rng.integers(1, 5)], n)),
    "word": lambda rng, n: some(lambda k: "w" * k, rng.integers(0, 30, n), pa.string()),
    "hundredths": lambda rng, n: pa.array(rng.integers(0, 4, n) / 100),
    "flag": lambda rng, n: pa.array(rng.random(n) < 0.5, mask=rng.random(n) < rng.choice([0, 0.5])),
    "lists": lambda rng, n: some(lambda k: list(range(k)), rng.integers(0, 6, n), pa.list_(pa.int32())),
    "structs": lambda rng, n: some(lambda k: [{"a": k, "b": ["x"] * k}] * k, rng.integers(0, 6, n), pa.list_(STRUCT)),
    "kind": lambda rng, n: pa.array(rng.choice(["x", "y", "z"], n)).dictionary_encode(),
    "vector": lambda rng, n: pa.FixedSizeListArray.from_arrays(pa.array(rng.random(3 * n), pa.float32()), 3),
    "wide": lambda rng, n: wide(rng, n, rng.random(n) < rng.choice([0, 0.3])),
}


def wide(rng, count, is_null=None):
    """Return vectors of 256 bytes, which are stored one after the other."""
    mask = None if is_null is None else pa.array(is_null)
    return pa.FixedSizeListArray.from_arrays(pa.array(rng.random(64 * count), pa.float32()), 64, mask=mask)


def some(value, sizes, kind):
    """Return a value for each size; 5 stands for null."""
    return pa.array([None if size == 5 else value(size) for size in sizes.tolist()], kind)


def rows(rng, count):
    return pa.table({name: make(rng, count) for name, make in COLUMNS.items()})


@pytest.fixture
def pages(monkeypatch):
    """Pages of each run that is decoded; files that are read together must not fail and be read one by one."""
    counts, share, take = [], page_runs.PagesOfFiles.share, several_files.result_of

    def counted(self, array):
        counts.append(len(self.rows))
        share(self, array)

    def unfailing(*arguments):
        try:
            return take(*arguments)
        except Exception as error:
            raise AssertionError("files are read one by one") from error

    monkeypatch.setattr(page_runs.PagesOfFiles, "share", counted)
    monkeypatch.setattr(several_files, "result_of", unfailing)
    return counts


def one_by_one(table, **asked):
    return [row for fragment in table.get_fragments() for row in fragment.to_table(**asked).to_pylist()]


@settings(max_examples=12)
@given(
    sizes=st.lists(st.integers(1, 300), min_size=2, max_size=7),
    seed=st.integers(0, 2**32 - 1),
    changes=st.sets(st.sampled_from(["delete", "evolve"])),
    version_and_condition=st.tuples(
        st.sampled_from(["2.0", "2.1", "2.2"]),
        st.sampled_from([None, "number % 2 = 0", "few = 'red'", "gap < 0.05", "flag"]),
    ),
)
def test_rows_are_those_of_each_file(tmp_path_factory, sizes, seed, changes, version_and_condition):
    uri, rng = str(tmp_path_factory.mktemp("t") / "t"), np.random.default_rng(seed)
    version, condition = version_and_condition
    for number, size in enumerate(sizes):
        if "evolve" in changes and number == 1:
            dataset(uri).add_columns({"twice": "number * 2"})
        table = rows(rng, size)
        if "evolve" in changes and number:
            table = table.append_column("twice", pa.array(rng.integers(0, 9, size)))
        write_dataset(table, uri, mode="append", data_storage_version=version)
    table = dataset(uri)
    if "delete" in changes:
        table.delete("hundredths = 0.01")
    columns = [None, ["structs", "few"], ["number"]][seed % 3]
    found = table.to_table(columns=columns, filter=condition)
    found.validate(full=True)
    assert found.to_pylist() == one_by_one(table, columns=columns, filter=condition)
    streamed = [row for batch in table.to_batches(columns=columns, filter=condition) for row in batch.to_pylist()]
    assert streamed == found.to_pylist()
    assert table.count_rows(condition) == found.num_rows


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_pages_that_are_encoded_alike_are_one_run(tmp_path, pages, version):
    rng = np.random.default_rng(3)
    for _ in range(9):
        write_dataset(rows(rng, 200), str(tmp_path / "t"), mode="append", data_storage_version=version)
    table = dataset(str(tmp_path / "t"))
    found = table.to_table()
    assert pages.count(9) >= 3
    assert found.to_pylist() == one_by_one(table)


def test_files_between_them_that_are_encoded_otherwise_stay_in_their_place(tmp_path, pages):
    for number in range(8):
        values = pa.array(range(number, number + 99)) if number % 3 else pa.nulls(99, pa.int64())
        write_dataset(pa.table({"n": values}), str(tmp_path / "t"), mode="append")
    table = dataset(str(tmp_path / "t"))
    found = table.to_table()["n"].to_pylist()
    assert pages == [5]
    assert found == [row["n"] for row in one_by_one(table)]


@pytest.mark.parametrize("has_nulls", [False, True])
def test_values_that_lie_one_after_the_other_are_one_run(tmp_path, pages, has_nulls):
    rng = np.random.default_rng(4)
    for number in range(8):
        count = 1_000 + number
        values = wide(rng, count, rng.random(count) < 0.2 if has_nulls else None)
        write_dataset(pa.table({"v": values}), str(tmp_path / "t"), mode="append")
    table = dataset(str(tmp_path / "t"))
    found = table.to_table()
    assert set(pages) == {8}
    assert found.to_pylist() == one_by_one(table)
    pages.clear()
    wanted = sorted(rng.choice(found.num_rows, 200, replace=False).tolist())
    assert table.take(wanted).to_pylist() == found.take(wanted).to_pylist()
    assert pages == [8]


def test_files_of_which_all_rows_are_read_are_copied_once(tmp_path, monkeypatch):
    """What tells where rows are comes with the rows."""
    rng = np.random.default_rng(5)
    for _ in range(6):
        columns = {"n": rng.integers(0, 1 << 30, 8_000), "few": rng.integers(0, 4, 8_000), "v": wide(rng, 8_000)}
        write_dataset(pa.table(columns), str(tmp_path / "t"), mode="append")
    asked = []
    copy = LocalReader.copy_present
    monkeypatch.setattr(
        LocalReader, "copy_present", lambda self, into, ranges: asked.append(len(ranges)) or copy(self, into, ranges)
    )
    table = dataset(str(tmp_path / "t"))
    found = table.to_table(columns=["n", "few"])
    assert asked == [1] * 6
    assert found.to_pylist() == one_by_one(table, columns=["n", "few"])


@pytest.mark.parametrize("rows_of_a_file", [999, 9_000])
def test_single_rows_of_files_are_decoded_with_all_others_until_these_are_opened(tmp_path, pages, rows_of_a_file):
    """Chunk tables of opened files are kept, which a few rows of each cost less with."""
    numbers = np.random.default_rng(7).integers(0, 1 << 20, (8, rows_of_a_file))
    parts = [pa.table({"n": some, "s": [f"{number % 9} items" for number in some]}) for some in numbers]
    for part in parts:
        write_dataset(part, str(tmp_path / "t"), mode="append")
    table, wanted = dataset(str(tmp_path / "t")), list(range(0, 8 * rows_of_a_file, 250))
    for decoded in ([8, 8], [], []):
        assert table.take(wanted).equals(pa.concat_tables(parts).take(wanted))
        assert pages == decoded
        pages.clear()


def test_single_rows_of_small_files_are_decoded_with_all_others(tmp_path, pages, monkeypatch):
    """Files that are alike need no objects of their own."""
    table = pa.table({"n": range(1800), "s": [f"{place % 9} items" for place in range(1800)]})
    write_dataset(table, str(tmp_path / "t"), max_rows_per_file=100)
    monkeypatch.setattr(alike_files.LeafPattern, "read", lambda *_: pytest.fail("a page is read by itself"))
    wanted = list(range(7, 1800, 60))
    assert dataset(str(tmp_path / "t")).take(wanted).equals(table.take(wanted))
    assert sum(pages) == 18 * 2


def test_steps_do_not_grow_with_the_files(tmp_path, monkeypatch):
    """Pages of a run have no index of their own."""
    for number in range(9):
        write_dataset(pa.table({"n": range(number, number + 999)}), str(tmp_path / "t"), mode="append")
    monkeypatch.setattr(plan, "decode_indexes", lambda pages: pages and pytest.fail("a page is read by itself"))
    assert dataset(str(tmp_path / "t")).to_table().num_rows == 8991


def test_a_damaged_dictionary_is_told_of_its_file(tmp_path):
    for number in range(4):
        texts = [f"a rather long text of kind {place % 5}, of file {number}" for place in range(400)]
        write_dataset(pa.table({"s": texts}), str(tmp_path / "t"), mode="append")
    path = tmp_path / "t" / "data" / dataset(str(tmp_path / "t")).get_fragments()[2].data_files()[0].path
    content = path.read_bytes()
    assert content.count(b"of file 2")
    path.write_bytes(content.replace(b"of file 2", b"of fire 2"))
    with pytest.raises(CorruptDataError, match=path.name):
        dataset(str(tmp_path / "t")).to_table()
