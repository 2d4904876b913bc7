"""B-trees: what they answer, what they leave to the scan, and how damage is told; in tests/compat pylance judges."""

import bisect
import math
import os
import uuid

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lance_core
from lance_core.errors import CorruptDataError, InvalidInputError, NotFoundError, UnsupportedError
from lance_core.format.index.btree import LOOKUP_FILE, PAGE_FILE
from lance_core.index.column import find_column
from lance_core.index.files import SegmentFiles
from lance_core.index.order import sort_keys
from lance_core.index.protocol import SegmentTarget
from lance_core.index.scalar import bitmap, btree, btree_pages
from lance_core.index.scalar.btree import BTREE
from lance_core.index.scalar.btree_pages import PageCache
from lance_core.sql.pruning import Comparison, IsNull, Membership, Prefix
from lance_core.store.local import LocalStore
from lance_core.store.local_reader import LocalReader


def index_files(dataset):
    return sorted(info.path for info in dataset.snapshot.store.list("_indices"))


@pytest.fixture
def dataset(tmp_path):
    rows = pa.table({"x": [i * 7919 % 20_011 for i in range(40_000)], "i": range(40_000)})
    dataset = lance_core.write_dataset(rows, tmp_path / "t", max_rows_per_file=25_000)
    dataset.create_scalar_index("x", "BTREE")
    return dataset


def opened(dataset, name="x"):
    (index,) = dataset.snapshot.manifest.indices
    column = find_column(dataset.snapshot.manifest.schema, name)
    return BTREE.open(SegmentFiles.of(dataset.snapshot.store, index), column), column


def test_small_files_of_an_index_are_read_whole(dataset):
    (index,) = dataset.snapshot.manifest.indices
    files = SegmentFiles.of(dataset.snapshot.store, index)
    assert files.open(LOOKUP_FILE).content is not None
    assert files.open(PAGE_FILE).content is None, "a large one is mapped"


@pytest.mark.parametrize("num_nulls", [0, 1, 4_096, 5_000])
def test_one_read_brings_a_page_and_its_rows(tmp_path, monkeypatch, num_nulls):
    numbers = [*[None] * num_nulls, *(number * 7919 % 20_011 for number in range(20_011))]
    dataset = lance_core.write_dataset(pa.table({"x": numbers}), tmp_path / "t")
    dataset.create_scalar_index("x", "BTREE")
    for number in (0, 1, 777, 5_000, 20_010):
        segment, _ = opened(dataset)
        reads, take = [], PageCache.take
        with monkeypatch.context() as patched:
            patched.setattr(
                PageCache, "take", lambda *args, reads=reads, take=take: reads.append(args[1]) or take(*args)
            )
            question = Comparison("x", "equal", pa.scalar(number))
            (row,) = segment._rows(question).tolist()
        assert numbers[row] == number
        is_shared = num_nulls % 4_096 and number < 4_096 - num_nulls % 4_096
        assert reads == [["values"] if is_shared else ["values", "ids"]], "not where nulls begin the page"


def test_a_look_up_reads_only_the_rows_that_match(dataset, monkeypatch):
    dataset = lance_core.dataset(dataset.uri)
    dataset.count_rows("x = 100")
    paths = []
    reader = LocalStore.reader
    monkeypatch.setattr(LocalStore, "reader", lambda self, path: paths.append(path) or reader(self, path))
    assert dataset.count_rows("x = 7") == 2
    assert paths == [], "the answer of an exact index counts, and the index is open"
    assert dataset.to_table(filter="x = 7", columns=["i"]).num_rows == 2
    assert {path.partition("/")[0] for path in paths} == {"data"}


def test_what_a_segment_answers(dataset):
    segment, _ = opened(dataset)
    seven = pa.scalar(7, pa.int64())
    assert segment.answer(Comparison("x", "equal", seven), tells_null=False).is_exact
    assert segment.answer(Membership("x", pa.array([7, 8, 8], pa.int64())), tells_null=True) is not None
    assert segment.answer(IsNull("x"), tells_null=False) is not None


@pytest.mark.parametrize(
    "question",
    [
        Comparison("x", "equal", pa.scalar(7, pa.int32())),
        Comparison("x", "equal", pa.scalar(7.0)),
        Comparison("x", "equal", pa.scalar("7")),
        Comparison("x", "not_equal", pa.scalar(7, pa.int64())),
        Comparison("x", "less", pa.scalar(20_000, pa.int64())),
        Membership("x", pa.array([7], pa.uint64())),
        Prefix("x", "7", is_exact=True),
    ],
)
def test_values_of_other_types_and_large_shares_are_left_to_the_scan(dataset, question):
    assert opened(dataset)[0].answer(question, tells_null=False) is None


@pytest.mark.parametrize("condition", ["NOT (x = 5)", "NOT (x > 5)", "(x = 5) IS NOT TRUE"])
def test_nulls_that_are_too_many_to_be_read_are_not_taken_for_false(tmp_path, monkeypatch, condition):
    monkeypatch.setattr(btree, "_ALWAYS_WORTH", 0)
    dataset = lance_core.write_dataset(pa.table({"x": [5, 7, *[None] * 20, *range(20)]}), tmp_path / "t")
    dataset.create_scalar_index("x", "BTREE")
    found = dataset.to_table(filter=condition)
    assert found == dataset.to_table(filter=condition, use_scalar_index=False)
    assert (found["x"].null_count > 0) == ("IS NOT TRUE" in condition)


@pytest.mark.parametrize("condition", ["starts_with(t, '\ud7ff')", "t LIKE 'a%b'", "t LIKE 'a_'"])
def test_prefixes_are_counted_and_found(tmp_path, condition):
    dataset = lance_core.write_dataset(
        pa.table({"t": ["\ud7ff", "\ud7ffx", "\ue000", "ab", "axb", "ac", None]}), tmp_path / "t"
    )
    dataset.create_scalar_index("t", "BTREE")
    expected = dataset.to_table(filter=condition, use_scalar_index=False)
    assert expected.num_rows == 2
    assert dataset.to_table(filter=condition) == expected
    assert dataset.count_rows(condition) == 2


@pytest.mark.parametrize("number", [0.0, -0.0, math.nan])
def test_zeros_and_nan_are_left_to_the_scan(tmp_path, number):
    floats = [0.0, -0.0, math.nan, -math.nan, 1.5, None]
    dataset = lance_core.write_dataset(pa.table({"x": floats}), tmp_path / "t")
    dataset.create_scalar_index("x", "BTREE")
    for operator in ("equal", "less", "greater_equal"):
        assert opened(dataset)[0].answer(Comparison("x", operator, pa.scalar(number)), tells_null=True) is None
    assert opened(dataset)[0].answer(Membership("x", pa.array([1.5, number])), tells_null=True) is None


VALUES = {
    "int": (st.integers(-5, 5), pa.int32()),
    "float": (st.sampled_from([math.nan, -math.nan, 0.0, -0.0, 1.5, -1.5, math.inf]), pa.float64()),
    "text": (st.text("ab\ud7ff\ue000\U0010ffff", max_size=3), pa.string()),
    "decimal": (st.decimals(-2, 2, places=1), pa.decimal128(5, 1)),
    "bool": (st.booleans(), pa.bool_()),
}


@pytest.mark.slow
@settings(max_examples=100 if os.environ.get("LANCE_TESTS") == "deep" else 8, deadline=None)
@pytest.mark.parametrize("name", VALUES)
@given(data=st.data())
def test_answers_are_those_of_a_scan(name, data):
    strategy, kind = VALUES[name]
    values = data.draw(st.lists(st.none() | strategy, min_size=1, max_size=30))
    literal = data.draw(strategy)
    rows = pa.table({"i": range(len(values)), "x": pa.array(values, kind)})
    uri = f"memory://{uuid.uuid4()}"
    dataset = lance_core.write_dataset(rows, uri, max_rows_per_file=data.draw(st.integers(3, 30)))
    dataset.create_scalar_index("x", "BTREE")
    if data.draw(st.booleans()):
        dataset.delete(f"i % 3 = {data.draw(st.integers(0, 2))}")
    text = {"text": f"'{literal}'", "bool": str(literal)}.get(name, str(literal))
    if not (name == "float" and not math.isfinite(literal)):
        compared = [f"x {operator} {text}" for operator in ("=", "<>", "<", "<=", ">", ">=")]
        conditions = [*compared, *(f"NOT ({one})" for one in compared), f"x = {text} OR x IS NULL", f"x IN ({text})"]
        conditions += [f"({compared[0]}) IS NOT TRUE", f"{compared[2]} AND i > 3", f"{compared[3]} OR i < 3"]
        conditions += [f"x LIKE '{literal}%'", f"NOT (x LIKE '{literal}%a')"] if name == "text" else []
        for condition in (*conditions, "x IS NOT NULL"):
            expected = dataset.to_table(filter=condition, use_scalar_index=False)
            assert repr(dataset.to_table(filter=condition).to_pylist()) == repr(expected.to_pylist()), condition
            assert dataset.count_rows(condition) == len(expected), condition


@pytest.mark.filterwarnings("ignore::lance_core.errors.IndexCoverageWarning")
def test_segments_are_merged_and_their_rows_relocated(dataset):
    """After a compaction the rows of both fragments are in one, without those that were deleted."""
    before, column = opened(dataset)
    dataset.delete("i % 2 = 0")
    dataset.optimize.compact_files()
    assert dataset.index_statistics("x_idx")["num_indexed_rows"] == 20_000
    (fragment,) = dataset.snapshot.manifest.fragments

    def relocate(addresses):
        old = (addresses >> 32) * 25_000 + (addresses & ((1 << 32) - 1))
        return np.where(old % 2 == 1, (fragment.id << 32) + old // 2, -1)

    files = SegmentFiles(dataset.snapshot.store, "_indices/relocated")
    target = SegmentTarget(files=files, column=column, with_stable_row_ids=False)
    content = BTREE.rewrite(target, [(before, relocate)])
    assert (content.index_version, len(files.written)) == (0, 2)
    built, _ = opened(dataset)
    for value in (7, 12_345, 20_010):
        question = Comparison("x", "equal", pa.scalar(value, pa.int64()))
        mine, other = (one.answer(question, tells_null=True) for one in (BTREE.open(files, column), built))
        assert mine.bounds.tolist() == other.bounds.tolist()
        assert mine.codes.tolist() == other.codes.tolist()
    files.remove()
    assert "relocated" not in " ".join(index_files(dataset))


def test_extending_reads_new_fragments_only(dataset, monkeypatch):
    lance_core.write_dataset(pa.table({"x": [7], "i": [50_000]}), dataset, mode="append")
    dataset = lance_core.dataset(dataset.uri)
    paths = []
    reader = LocalStore.sized_reader
    monkeypatch.setattr(
        LocalStore,
        "sized_reader",
        lambda self, path, *size, **most: paths.append(path) or reader(self, path, *size, **most),
    )
    assert dataset.optimize.optimize_indices() == ["x_idx"]
    assert len([path for path in paths if path.startswith("data/")]) == 1
    assert dataset.count_rows("x = 7") == 3
    assert dataset.index_statistics("x_idx")["num_unindexed_rows"] == 0
    names = [path.rpartition("/")[2] for path in index_files(dataset)]
    assert len(names) == 4, "the segment of the new fragment was for the merge only"


def test_options_and_types_that_it_does_not_take(tmp_path):
    dataset = lance_core.write_dataset(pa.table({"x": [1], "l": [[1]]}), tmp_path / "t")
    with pytest.raises(InvalidInputError, match="rows_per_zone"):
        dataset.create_scalar_index("x", "BTREE", rows_per_zone=5)
    with pytest.raises(UnsupportedError, match="list"):
        dataset.create_scalar_index("l", "BTREE")
    assert index_files(dataset) == []


@pytest.mark.parametrize("kind", ["BTREE", "BITMAP"])
def test_who_opens_an_index_again_finds_its_keys(tmp_path, monkeypatch, kind):
    dataset = lance_core.write_dataset(pa.table({"x": range(10_000)}), tmp_path / "t")
    dataset.create_scalar_index("x", kind)
    module = {"BTREE": btree, "BITMAP": bitmap}[kind]
    read = []
    read_columns = module.read_columns
    monkeypatch.setattr(
        module, "read_columns", lambda reader, names, *rows: read.append(names) or read_columns(reader, names, *rows)
    )
    for _ in range(2):
        assert lance_core.dataset(dataset.uri).count_rows("x = 7") == 1
        keys, read = [names for names in read if names != ["ids"]], []
    assert keys == [], "they stay with the metadata of the file"
    dataset.create_scalar_index("x", kind, replace=True)
    assert lance_core.dataset(dataset.uri).count_rows("x = 7") == 1
    assert len([names for names in read if names != ["ids"]]) == 1, "another file"


def test_damage_is_told(dataset):
    (path,) = [path for path in index_files(dataset) if path.endswith(PAGE_FILE)]
    store = dataset.snapshot.store
    data = store.get(path)
    store.put(path, data[:100])
    with pytest.raises(CorruptDataError, match=r"page_data\.lance"):
        lance_core.dataset(dataset.uri).count_rows("x = 7")
    store.delete([path])
    with pytest.raises(NotFoundError, match=r"page_data\.lance"):
        lance_core.dataset(dataset.uri).count_rows("x = 7")
    assert lance_core.dataset(dataset.uri).to_table(filter="x = 7", use_scalar_index=False).num_rows == 2
    lance_core.dataset(dataset.uri).drop_index("x_idx")
    assert lance_core.dataset(dataset.uri).count_rows("x = 7") == 2


def test_text_that_is_damaged_is_a_typed_error():
    damaged = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")])
    with pytest.raises(CorruptDataError, match="not valid UTF-8"):
        sort_keys(damaged)


RANGES = [
    "x > 9000 AND x <= 9010",
    "x >= 9000 AND i > 5 AND x < 9010",
    "x BETWEEN 9000 AND 9010",
    "x > 9010 AND x < 9000",
    "x > 9000 AND x > 9004 AND x < 9010 AND x <= 9009",
    "NOT (x BETWEEN 10 AND 39990)",
    "NOT (x >= 9000 AND x < 9010) AND x < 9020 AND x > 8990",
    "(x > 9000 AND x < 9004) OR (x >= 12000 AND x <= 12001) OR x IS NULL",
    "f > 0.5 AND f < 0.501",
    "f >= 0.999 AND f < 1e300",
    "t >= 'n09000' AND t < 'n09005'",
]


@pytest.mark.parametrize("kind", ["BTREE", "BITMAP", "ZONEMAP"])
def test_two_bounds_of_a_column_are_one_range(tmp_path, kind):
    """Each bound alone leaves half of the rows, which a B-tree leaves to the scan."""
    numbers = np.random.default_rng(1).permutation(20_000)
    floats = pa.array([math.nan if number % 1000 == 0 else number / 20_000 for number in numbers.tolist()])
    columns = {
        "x": pa.array(numbers, mask=numbers % 100 == 7),
        "f": floats,
        "t": pa.array([f"n{number:05}" for number in numbers.tolist()]),
        "i": range(20_000),
    }
    dataset = lance_core.write_dataset(pa.table(columns), tmp_path / "t", max_rows_per_file=9_000)
    for column in "xft":
        dataset.create_scalar_index(column, kind)
    for condition in RANGES:
        expected = dataset.to_table(["i"], filter=condition, use_scalar_index=False)
        assert dataset.to_table(["i"], filter=condition).equals(expected), condition
    if kind == "BTREE":
        for condition in (RANGES[0], RANGES[2], RANGES[8], RANGES[10]):
            assert (
                f"{len(dataset.to_table(filter=condition))} of 20,000 rows"
                in dataset.scanner(filter=condition).explain_plan()
            )


def test_many_texts_are_looked_up_a_part_of_the_index_at_a_time(tmp_path, monkeypatch):
    texts = [f"key-{number:06d}" for number in range(300_000)]
    dataset = lance_core.write_dataset(pa.table({"text": texts}), tmp_path / "t")
    dataset.create_scalar_index("text", "BTREE")
    taken = []
    take = PageCache.take
    monkeypatch.setattr(
        PageCache, "take", lambda self, *args, **options: taken.append(len(args[1])) or take(self, *args, **options)
    )
    monkeypatch.setattr(btree, "_READ_ROWS", 1000)
    keys = texts[500::4000]
    segment, _ = opened(dataset, "text")
    found, rows = segment.find(pa.array(keys))
    assert found.tolist() == list(range(len(keys)))
    assert rows.tolist() == list(range(500, 300_000, 4000))
    assert max(taken) <= 1000 < sum(taken)


@pytest.fixture
def copied(monkeypatch):
    """Bytes of each copy out of a local file."""
    sizes = []
    copy = LocalReader.copy_present
    monkeypatch.setattr(
        LocalReader, "copy_present", lambda self, into, ranges: sizes.append(len(into)) or copy(self, into, ranges)
    )
    return sizes


def test_many_scattered_rows_are_copied_so_that_their_file_is_not_mapped(tmp_path, copied):
    numbers = np.random.default_rng(3).permutation(300_000)
    dataset = lance_core.write_dataset(pa.table({"x": numbers}), tmp_path / "t")
    dataset.create_scalar_index("x", "BTREE")
    segment, _ = opened(dataset)
    _, rows = segment.find(pa.array(range(0, 300_000, 400)))
    assert numbers[rows].tolist() == list(range(0, 300_000, 400))
    assert copied  # values, and row ids
    copied.clear()
    segment.find(pa.array([7, 77_777, 277_777]))
    assert copied == []
    (path,) = (tmp_path / "t").rglob(PAGE_FILE)
    data = path.read_bytes()
    path.write_bytes(bytes(byte ^ (at % 4096 == 7) for at, byte in enumerate(data[:-20_000])) + data[-20_000:])
    segment, _ = opened(dataset)
    with pytest.raises(CorruptDataError):
        segment.find(pa.array(range(0, 300_000, 400)))


@given(
    st.sampled_from([pa.string(), pa.large_binary()]),
    st.lists(st.text("ab\0é", max_size=12), min_size=1, max_size=40),
    st.lists(st.text("ab\0é", max_size=12), min_size=1, max_size=12),
    st.text("aé", max_size=12),
    st.integers(1, 40),
)
@settings(max_examples=300, deadline=None)
def test_texts_are_found_among_those_of_their_pages(kind, texts, wanted, beginning, page_rows):
    """Whatever their first bytes have in common; a text that ends is less than one that goes on with a zero."""
    ordered = sorted((beginning + text).encode() for text in [*texts, *wanted[::2]])
    keys = sorted(
        text for text in {(beginning + text).encode() for text in wanted} | {b"", b"b"} if text <= ordered[-1]
    )
    pages = [
        btree_pages._text_page(7 + at, pa.array(ordered[at : at + page_rows], pa.large_binary()).cast(kind))
        for at in range(0, len(ordered), page_rows)
    ]
    lasts = [ordered[min(at + page_rows, len(ordered)) - 1] for at in range(0, len(ordered), page_rows)]
    numbers = [bisect.bisect_left(lasts, key) for key in keys]
    values = pa.array(keys, pa.large_binary()).cast(kind)
    found = btree_pages.positions_in(dict(enumerate(pages)), values, sort_keys(values), np.array(numbers))
    assert found["left"].tolist() == [7 + bisect.bisect_left(ordered, key) for key in keys]
    ends = [min((number + 1) * page_rows, len(ordered)) for number in numbers]
    behind = [min(bisect.bisect_right(ordered, key), end) for key, end in zip(keys, ends, strict=True)]
    assert found["right"].tolist() == [7 + place for place in behind]


@pytest.mark.parametrize("kind", [pa.int64(), pa.string(), pa.large_binary()])
@pytest.mark.parametrize("sides", [("left",), ("right",), ("left", "right")])
def test_values_are_found_on_both_sides_of_the_ends_of_pages(tmp_path, kind, sides):
    """Of some the last of a page, of some all of two pages; others are before, between and behind all values."""
    numbers = np.sort(np.concatenate([np.arange(2, 9_000, 2), np.full(9_000, 4_000), np.full(1_192, 8_000)]))
    texts = [f"{number:05d}" for number in numbers.tolist()]
    values = pa.array(numbers) if kind == pa.int64() else pa.array(texts).cast(kind)
    dataset = lance_core.write_dataset(pa.table({"x": values}), tmp_path / "t")
    dataset.create_scalar_index("x", "BTREE")
    segment, _ = opened(dataset)
    wanted = np.array([8_999, 4_000, 0, 8_998, 3, 4_000, int(numbers[4_095]), int(numbers[4_096]), 7_000, 10_000])
    keys = pa.array(wanted) if kind == pa.int64() else pa.array([f"{number:05d}" for number in wanted]).cast(kind)
    positions = segment._positions(keys, *sides)
    assert [rows.tolist() for rows in positions] == [numbers.searchsorted(wanted, side).tolist() for side in sides]
    for number, key in enumerate(wanted.tolist()):
        positions = segment._positions(keys[number : number + 1], *sides)
        assert [rows.tolist() for rows in positions] == [[int(numbers.searchsorted(key, side))] for side in sides]


def test_few_texts_of_a_page_are_looked_at(tmp_path, monkeypatch):
    rows = pa.table({"s": [f"https://example.com/{i * 7919 % 20_011}" for i in range(20_000)]})
    dataset = lance_core.write_dataset(rows, tmp_path / "t")
    dataset.create_scalar_index("s", "BTREE")
    texts = ", ".join(f"'https://example.com/{i}'" for i in range(100, 300))
    assert dataset.count_rows(f"s IN ({texts})") == 200
    looked_at = []
    search = btree_pages._search_texts

    def counted(pages, owners, wanted, lows, highs):
        looked_at.append(int((highs - lows).sum()))
        search(pages, owners, wanted, lows, highs)

    monkeypatch.setattr(btree_pages, "_search_texts", counted)
    assert dataset.count_rows(f"s IN ({texts})") == 200
    assert looked_at == [200]


@pytest.mark.parametrize(
    ("kind", "most_bytes", "nums_of_reads"),
    [("int", 1 << 21, (2, 1, 0)), ("text", 1 << 21, (2, 1, 0)), ("text", 1 << 18, (2, 2, 2))],
)
def test_all_pages_are_kept_once_they_are_asked_for_again_if_they_fit(
    tmp_path, monkeypatch, kind, most_bytes, nums_of_reads
):
    numbers = [number * 7919 % 20_011 for number in range(40_000)]
    values = numbers if kind == "int" else [f"text {number}" for number in numbers]
    dataset = lance_core.write_dataset(pa.table({"x": values}), tmp_path / "t")
    dataset.create_scalar_index("x", "BTREE")
    monkeypatch.setattr(btree, "_LEAST_PAGES", 2)
    monkeypatch.setattr(btree, "MOST_BYTES", most_bytes)
    wanted = range(0, 20_000, 400) if kind == "int" else [f"'text {number}'" for number in range(0, 20_000, 400)]
    condition = f"x IN ({', '.join(map(str, wanted))})"
    expected = len(dataset.to_table(filter=condition, use_scalar_index=False))
    read = []
    take = PageCache.take

    def counted(cache, columns, rows, **options):
        read.append(columns)
        return take(cache, columns, rows, **options)

    monkeypatch.setattr(PageCache, "take", counted)
    for num_reads in nums_of_reads:
        read.clear()
        assert dataset.count_rows(condition) == expected
        assert len(read) == num_reads


@pytest.mark.parametrize("num_nulls", [0, 1, 5_000])
def test_row_numbers_of_pages_are_kept_once_they_are_asked_for_again(tmp_path, monkeypatch, num_nulls):
    numbers = [*[None] * num_nulls, *(number * 7919 % 20_011 for number in range(20_011))]
    dataset = lance_core.write_dataset(pa.table({"x": numbers}), tmp_path / "t")
    dataset.create_scalar_index("x", "BTREE")
    segment, _ = opened(dataset)
    rows = segment.content()[1]
    ranges = [([num_nulls + 100], [num_nulls + 9_000]), ([0, 4_095, 13_000], [7, 4_097, len(rows)])]
    for starts, ends in ranges:
        wanted = np.concatenate([rows[start:end] for start, end in zip(starts, ends, strict=True)])
        for _ in range(3):
            assert np.array_equal(segment._ids_of(np.array(starts), np.array(ends)), wanted)
    monkeypatch.setattr(PageCache, "take", None)
    monkeypatch.setattr(btree, "read_columns", None)
    assert np.array_equal(segment._ids_of(np.array([num_nulls]), np.array([len(rows)])), rows[num_nulls:])
