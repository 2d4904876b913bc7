"""Plans tell which indices a scan uses, and what they save."""

import pyarrow as pa
import pytest

import lance_core
from lance_core.format.file import notation
from lance_core.index.scalar.btree_pages import PageCache
from lance_core.sql import comparisons


@pytest.fixture
def dataset(tmp_path):
    rows = pa.table({"k": range(8000), "t": [f"{number:08}" for number in range(8000)]})
    dataset = lance_core.write_dataset(rows, tmp_path / "t", max_rows_per_file=2000)
    dataset.create_scalar_index("k", "BTREE")
    dataset.create_scalar_index("t", "ZONEMAP", rows_per_zone=1000)
    return dataset


def test_a_plan_names_indices_and_their_kinds(dataset):
    plan = dataset.scanner(filter="k = 77 AND t < '5'").explain_plan()
    assert "index: k_idx, t_idx, 1 of 8,000 rows may match" in plan
    assert "index kinds: k_idx BTree, t_idx ZoneMap" in plan


def test_a_plan_tells_that_no_index_is_used(dataset):
    assert "no index is used" in dataset.scanner(filter="k + 1 = 77").explain_plan()
    assert "no index is used" in dataset.scanner(filter="k = 77", use_scalar_index=False).explain_plan()
    assert "index" not in dataset.scanner().explain_plan()


def test_an_index_that_decides_saves_all_of_the_column(dataset):
    sizes = {field.id: field.bytes_on_disk for field in dataset.stats.data_stats().fields}
    plan = dataset.scanner(columns=["t"], filter="k = 77").analyze_plan()
    assert f"read 0 of 4 pages, 0 of 8,000 rows, 0 of {sizes[0]:,} bytes of the filter's columns" in plan
    assert f"saved 4 pages, 8,000 rows, {sizes[0]:,} bytes" in plan
    assert "output_rows=1" in plan


def test_an_index_that_narrows_saves_pages_without_candidates(dataset):
    plan = dataset.scanner(columns=["k"], filter="t BETWEEN '00002100' AND '00002200'").analyze_plan()
    assert "read 1 of 4 pages, 1,000 of 8,000 rows, " in plan
    assert "saved 3 pages, 7,000 rows, " in plan
    assert "output_rows=101" in plan


@pytest.mark.parametrize("column", ["k", "t"])
def test_look_ups_read_a_page_of_a_b_tree_once(dataset, monkeypatch, column):
    if column == "t":
        dataset.create_scalar_index("t", "BTREE", name="t_tree")
        dataset.drop_index("t_idx")
    reads = []
    take = PageCache.take
    monkeypatch.setattr(
        PageCache, "take", lambda self, columns, rows: reads.append(columns) or take(self, columns, rows)
    )
    for number in (100, 101, 100, 4000, 100):
        value = number if column == "k" else f"'{number:08}'"
        assert dataset.to_table(["k"], filter=f"{column} = {value}")["k"].to_pylist() == [number]
    assert reads == [["values", "ids"]], "row numbers of a page come with its values"


def test_a_condition_is_parsed_once_for_a_schema(dataset, monkeypatch):
    parsed, parse = [], comparisons.parse_comparisons

    def counted(text, schema):
        parsed.append(text)
        return parse(text, schema)

    monkeypatch.setattr(comparisons, "parse_comparisons", counted)
    for _ in range(3):
        assert dataset.count_rows("k < 17 AND k > 12") == 4
    dataset.alter_columns({"path": "t", "name": "u"})
    assert dataset.count_rows("k < 17 AND k > 12") == 4
    assert parsed == ["k < 17 AND k > 12"] * 2


def test_sizes_of_columns_are_told_without_text_of_their_encodings(dataset, monkeypatch):
    def refuse(value):
        raise AssertionError(f"{value} is described")

    monkeypatch.setattr(notation, "notation", refuse)
    assert sum(field.bytes_on_disk for field in dataset.stats.data_stats().fields) > 0
    assert "saved 4 pages" in dataset.scanner(filter="k = 77").analyze_plan()
