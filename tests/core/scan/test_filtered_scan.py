"""Scans with a condition give what a plain scan gives, filtered; and they do no more than they need."""

import os
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lance_core
from lance_core.encoding import arrow_values
from lance_core.encoding.dictionary_encoded import DictionaryEncoded
from lance_core.encoding.layouts import constant
from lance_core.errors import InvalidInputError
from lance_core.file.read import plan, reader, strategy
from lance_core.file.write import writer
from lance_core.scan import fragments
from lance_core.scan import plan as scan_plan
from lance_core.scan.fragment_reader import FragmentReader
from lance_core.sql.predicate import Predicate

pytestmark = pytest.mark.slow

N = 8_000


def masked(values, rng, kind=None):
    return pa.array(values, kind, mask=rng.random(len(values)) < 0.1)


def every_kind(rng, num_rows=N):
    """Columns that are stored in different ways: packed, by dictionary, flat, constant, in lists, as vectors."""
    words = [f"word-{number}" for number in range(300)]
    few = rng.choice([0.5, -0.0, 0.0, float("nan"), float("inf"), 2.5], num_rows)
    sizes = rng.integers(0, 4, num_rows)
    offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32))
    numbers = pa.array(rng.integers(0, 50, int(sizes.sum())))
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(rng.random(num_rows * 64, np.float32)), 64)
    pairs = pa.FixedSizeListArray.from_arrays(masked(rng.integers(0, 9, num_rows * 2), rng), 2)
    return pa.table(
        {
            "pick": rng.random(num_rows),
            "small": rng.integers(0, 7, num_rows, np.int16),
            "small_null": masked(rng.integers(0, 1000, num_rows), rng),
            "few": few,
            "few_null": masked(rng.choice([1.25, 2.5, 99.0], num_rows), rng),
            "random": masked(rng.random(num_rows), rng),
            "flag": masked(rng.random(num_rows) < 0.3, rng),
            "constant": np.full(num_rows, 7),
            "empty": pa.nulls(num_rows, pa.int32()),
            "word": pa.array(words).take(pa.array(rng.integers(0, 300, num_rows))),
            "word_null": masked(rng.choice(words, num_rows), rng, pa.string()),
            "text": [f"{number} of {rng.bytes(3).hex()}" for number in range(num_rows)],
            "dictionary": masked(rng.choice(words[:9], num_rows), rng, pa.string()).dictionary_encode(),
            "list": pa.ListArray.from_arrays(offsets, numbers),
            "struct": pa.StructArray.from_arrays(
                [
                    masked(rng.integers(0, 9, num_rows), rng),
                    pa.array(words).take(pa.array(rng.integers(0, 9, num_rows))),
                ],
                ["a", "b"],
                mask=pa.array(rng.random(num_rows) < 0.1),
            ),
            "vector": vectors,
            "pair": pairs,
        }
    )


def kept(table, wanted):
    return table.filter(pa.array(wanted))


def same(ours, theirs):
    """Equal, NaN and the sign of zeros included."""
    assert ours.schema == theirs.schema
    for name in ours.column_names:
        left, right = ours[name].combine_chunks(), theirs[name].combine_chunks()
        if pa.types.is_dictionary(left.type):
            left, right = left.cast(pa.string()), right.cast(pa.string())
        if pa.types.is_floating(left.type):
            left, right = left.view(pa.int64()), right.view(pa.int64())
        assert left.equals(right), name


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The address of a table of all kinds of columns in small pages; each is written once and only read."""

    @cache
    def write(version, page_bytes, deleted, num_files=1):
        table = every_kind(np.random.default_rng(3))
        if version == "2.0" or num_files == 1:
            table = table.drop_columns(["struct"])
        uri = str(tmp_path_factory.mktemp("written") / "t")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(writer, "PAGE_BYTES", page_bytes)
            for start in range(0, N, N // num_files):
                part = table.slice(start, N // num_files)
                lance_core.write_dataset(part, uri, mode="append", data_storage_version=version)
        if deleted:
            lance_core.dataset(uri).delete(deleted)
        return uri

    return write


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
@pytest.mark.parametrize("share", [0, 0.001, 0.04, 0.5, 0.93, 1])
@pytest.mark.parametrize("deleted", [0, 20, 500])
def test_a_filtered_scan_is_a_scan_filtered(written, monkeypatch, version, share, deleted):
    monkeypatch.setattr(strategy, "MOST_BATCHED_ROWS", 100)
    uri = written(version, 1 << 14, deleted and f"small_null < {deleted}", num_files=2)
    made = lance_core.dataset(uri)
    whole = made.to_table()
    wanted = whole["pick"].to_numpy() < share
    for options in ({}, {"batch_size": 700}):
        same(made.to_table(filter=f"pick < {share}", **options), kept(whole, wanted))
        assert made.count_rows(filter=f"pick < {share}") == wanted.sum()
    found, everything = (
        made.scanner(filter=one, columns=["word", "vector"], with_row_id=True).to_table()
        for one in (f"pick < {share}", None)
    )
    same(found, kept(everything, wanted))


def test_items_of_dictionaries_are_looked_up_for_the_rows_that_are_kept(tmp_path, monkeypatch):
    rng = np.random.default_rng(1)
    count = 100_000
    words = pa.array([f"word-{number}" for number in range(300)]).take(pa.array(rng.integers(0, 300, count)))
    table = pa.table({"pick": np.arange(count) % 10, "word": words, "few": rng.choice([1.5, 2.5, 99.75], count)})
    made = lance_core.write_dataset(table, tmp_path / "t")
    looked_up = []

    def counted(items, indices, *others):
        looked_up.append(len(indices))
        return look_up(items, indices, *others)

    look_up = arrow_values._looked_up
    monkeypatch.setattr(arrow_values, "_looked_up", counted)
    found = made.to_table(filter="pick < 2")
    assert found.equals(kept(table, table["pick"].to_numpy() < 2))
    # Items of the condition's column are asked, and of the two others those of rows that are kept are looked up.
    assert sum(looked_up) == 2 * count // 5


ALONE = {
    "few_null = 2.5": pc.field("few_null") == 2.5,
    "few_null is null": pc.field("few_null").is_null(),
    "word < 'word-2'": pc.field("word") < "word-2",
    "word = 'word-7'": pc.field("word") == "word-7",
    "small_null > 20": pc.field("small_null") > 20,
    "constant = 7": pc.field("constant") == 7,
}


@pytest.mark.parametrize("version", ["2.0", "2.2"])
@pytest.mark.parametrize("condition", ALONE)
@pytest.mark.parametrize("batch_size", [None, 512, 700])
def test_conditions_on_pages_of_any_size(written, version, condition, batch_size):
    """Pages do not end where steps do, and some have dictionaries."""
    made = lance_core.dataset(written(version, 1 << 12, "flag and small = 3"))
    rows = made.to_table()
    wanted = rows.filter(ALONE[condition])
    assert wanted.num_rows > 0
    same(made.to_table(filter=condition, batch_size=batch_size), wanted)
    assert made.count_rows(filter=condition) == wanted.num_rows


def test_items_of_the_condition_are_looked_up_for_the_rows_that_match(tmp_path, monkeypatch):
    count = 100_000
    table = pa.table({"few": (np.arange(count) % 100) * 0.37, "other": np.arange(count)})
    made = lance_core.write_dataset(table, tmp_path / "t")
    looked_up = []

    def counted(coded):
        looked_up.append(len(coded))
        return values(coded)

    values = DictionaryEncoded.values
    monkeypatch.setattr(DictionaryEncoded, "values", counted)
    assert made.to_table(filter="few < 0.5").num_rows == count // 50
    assert sum(looked_up) == count // 50


def test_a_constant_is_repeated_for_the_rows_that_are_kept(tmp_path, monkeypatch):
    count = 100_000
    table = pa.table({"pick": np.arange(count) % 10, "one": np.full(count, 7), "same": ["a"] * count})
    made = lance_core.write_dataset(table, tmp_path / "t")
    repeated = []

    def counted(values, counts, kind):
        repeated.extend(counts)
        return repeat(values, counts, kind)

    repeat = constant.repeat_each
    monkeypatch.setattr(constant, "repeat_each", counted)
    found = made.to_table(filter="pick < 2")
    assert found.equals(kept(table, table["pick"].to_numpy() < 2))
    assert sum(repeated) == 2 * count // 5


def test_what_is_known_of_pages_is_kept_from_batch_to_batch(tmp_path, monkeypatch):
    count = 200_000
    table = pa.table({"pick": np.arange(count) % 2, "other": np.arange(count) % 1000, "more": np.arange(count) % 99})
    made = lance_core.write_dataset(table, tmp_path / "t")
    monkeypatch.setattr(scan_plan, "STREAM_BATCH_BYTES", 0)
    loaded = []

    def counted(pages):
        loaded.extend(page.part.number for page in pages)
        return decode_indexes(pages)

    decode_indexes = plan.decode_indexes
    monkeypatch.setattr(plan, "decode_indexes", counted)
    batches = list(made.to_batches(filter="pick = 1", batch_size=40_000))
    assert len(batches) == 5
    assert loaded == [0, 0, 0]


def test_a_filter_whose_result_is_kept_looks_at_four_batches_at_once(tmp_path, monkeypatch):
    """Each look at a column costs as much as some ten thousand values."""
    count = 100_000
    made = lance_core.write_dataset(
        pa.table({"pick": np.arange(count) % 4, "other": np.arange(count) % 1000}), tmp_path / "t"
    )
    monkeypatch.setattr(scan_plan, "STREAM_BATCH_BYTES", 0)
    looks = []
    plan_rows = reader.plan_rows

    def counted(fields, rows, selected=None, **options):
        if selected is not None:
            looks.append(len(rows))
        return plan_rows(fields, rows, selected, **options)

    monkeypatch.setattr(reader, "plan_rows", counted)
    assert sum(one.num_rows for one in made.to_batches(filter="pick = 1", batch_size=10_000)) == count // 4
    assert looks == [10_000] * 10
    looks.clear()
    assert made.scanner(filter="pick = 1", batch_size=10_000).to_table().num_rows == count // 4
    assert looks == [40_000, 40_000, 20_000]


CONDITIONS = [
    "number < 3",
    "number is null",
    "number is not null and number != 2",
    "not (number > 1)",
    "few > 1",
    "few < 1",
    "few = 0",
    "few != 0.5",
    "few is null or few >= 2.5",
    "isnan(few)",
    "few in (0.5, 2.5)",
    "word like '%1%'",
    "word is null",
    "word in ('word-1', 'word-2')",
    "coalesce(word, 'word-3') = 'word-3'",
    "upper(word) = 'WORD-4'",
    "10 / number > 2",
]


@pytest.mark.parametrize("page_bytes", [1 << 12, 1 << 23])
@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_counts_and_deletions_find_what_scans_find(tmp_path, monkeypatch, page_bytes, condition, version):
    """Counts ask items of dictionaries, scans ask values."""
    monkeypatch.setattr(writer, "PAGE_BYTES", page_bytes)
    rng = np.random.default_rng(page_bytes)
    words = [f"word-{number}" for number in range(12)]
    few = rng.choice([0.5, -0.0, 0.0, float("nan"), float("inf"), 2.5], N)
    table = pa.table(
        {
            "id": np.arange(N),
            "number": masked(rng.integers(1, 5, N), rng),
            "few": masked(few, rng),
            "word": masked(rng.choice(words, N), rng, pa.string()),
        }
    )
    made = lance_core.write_dataset(table, tmp_path / "t", data_storage_version=version)
    made.delete("id % 7 = 1")
    expected = made.to_table(filter=condition)["id"].to_pylist()
    assert made.count_rows(filter=condition) == len(expected)
    everything = set(made.to_table()["id"].to_pylist())
    made.delete(condition)
    assert set(made.to_table()["id"].to_pylist()) == everything - set(expected)


def test_items_are_asked_instead_of_values(tmp_path, monkeypatch):
    count = 100_000
    words = pa.array(["a", "b", None, "c"]).take(pa.array(np.arange(count) % 4))
    made = lance_core.write_dataset(pa.table({"word": words, "more": words}), tmp_path / "t")
    asked = []

    def counted(self, batch):
        asked.append(batch.num_rows)
        return mask(self, batch)

    mask = Predicate.mask
    monkeypatch.setattr(Predicate, "mask", counted)
    assert made.count_rows(filter="word = 'b'") == count // 4
    assert made.count_rows(filter="word is null") == count // 4
    assert sum(asked) <= 2 * 5  # three items, nothing, null
    made.delete("word < 'c'")
    assert sum(asked) <= 3 * 5
    assert made.count_rows() == count // 2


def test_items_that_no_row_has_cannot_fail(tmp_path):
    """What stands under nulls is an item of the dictionary, too: here 0."""
    numbers = [None if number % 5 == 0 else number % 5 * 1_000_000_007 for number in range(20_000)]
    table = pa.table({"number": numbers, "id": range(20_000)})
    made = lance_core.write_dataset(table, tmp_path / "t")
    found = made.to_table(filter="7000000049 / number = 7")
    assert found["id"].to_pylist() == list(range(1, 20_000, 5))
    assert made.count_rows(filter="7000000049 / number = 7") == 4_000
    lance_core.write_dataset(pa.table({"number": [0], "id": [20_000]}), tmp_path / "t", mode="append")
    with pytest.raises(InvalidInputError, match="divide by zero"):
        lance_core.dataset(tmp_path / "t").count_rows(filter="7000000049 / number = 7")


def test_items_of_a_dictionary_that_no_row_has_are_no_damage():
    """Pages of JSON documents hold an item without bytes for null."""
    documents = [None if number % 5 == 0 else f'{{"a":{number % 20},"text":"some words"}}' for number in range(2_000)]
    rows = pa.table({"id": range(2_000), "doc": pa.array(documents, pa.json_())})
    dataset = lance_core.write_dataset(rows, "memory://documents-with-null")
    assert dataset.count_rows("json_get_int(doc, 'a') = 7") == 100
    assert dataset.count_rows("json_get_int(doc, 'a') IS NULL") == 400


@pytest.fixture
def asked(monkeypatch):
    """Numbers of rows of which a condition is asked."""
    sizes, make = [], fragments.as_mask

    def counted(answer):
        mask = make(answer)
        sizes.append(len(mask))
        return mask

    monkeypatch.setattr(fragments, "as_mask", counted)
    return sizes


CONDITION = "a % 3 = 0 AND b < 90"


def test_small_batches_are_not_looked_for_one_by_one(tmp_path, asked):
    rows = pa.table({"a": range(20_000), "b": [k % 100 for k in range(20_000)], "c": range(20_000)})
    table = lance_core.write_dataset(rows, str(tmp_path / "t"))
    expected = [k for k in range(20_000) if k % 3 == 0 and k % 100 < 90]
    for batch_size, looks in ((1000, [20_000]), (200, [6400, 6400, 6400, 800])):
        batches = list(table.to_batches(filter=CONDITION, batch_size=batch_size))
        assert max(batch.num_rows for batch in batches) == batch_size
        assert pa.Table.from_batches(batches)["c"].to_pylist() == expected
        assert asked == looks
        asked.clear()


def test_a_few_rows_are_looked_for_in_small_steps(tmp_path, asked):
    rows = pa.table({"a": range(20_000), "b": [k % 100 for k in range(20_000)]})
    table = lance_core.write_dataset(rows, str(tmp_path / "t"))
    assert table.to_table(filter=CONDITION, batch_size=10, limit=4)["a"].to_pylist() == [0, 3, 6, 9]
    assert sum(asked) <= 80


def test_large_rows_are_looked_at_in_small_steps(tmp_path, asked):
    payload = [os.urandom(1 << 16) for _ in range(200)]
    rows = pa.table({"a": range(200), "b": range(200), "payload": payload})
    table = lance_core.write_dataset(rows, str(tmp_path / "t"))
    found = pa.Table.from_batches(table.to_batches(filter=CONDITION, batch_size=8))
    assert found.equals(rows.take(list(range(0, 90, 3))))
    assert max(asked) <= 64


@pytest.mark.parametrize("is_indexed", [False, True])
@pytest.mark.parametrize(("limit", "offset"), [(0, 0), (3, 0), (3, 5), (4, 18), (60, 1), (1, 70)])
def test_with_a_limit_only_rows_inside_of_it_are_fetched(tmp_path, monkeypatch, is_indexed, limit, offset):
    rows = pa.table({"k": [i % 100 for i in range(7000)], "s": [f"row {i}" for i in range(7000)]})
    table = lance_core.write_dataset(rows, tmp_path / "t", max_rows_per_file=2000)
    if is_indexed:
        table.create_scalar_index("k", "BTREE")
    table.delete("s = 'row 107'")
    expected = [i for i in range(7000) if i % 100 == 7 and i != 107][offset:][:limit]
    fetched = []
    taking = FragmentReader.taking

    def counted(reader, projection, offsets):
        fetched.append(len(offsets))
        return taking(reader, projection, offsets)

    monkeypatch.setattr(FragmentReader, "taking", counted)
    found = table.to_table(columns=["s"], filter="k = 7", limit=limit, offset=offset)
    assert found["s"].to_pylist() == [f"row {i}" for i in expected]
    assert sum(fetched) == len(expected)
