"""Indices of pylance tell the truth after lance_core has moved or rewritten rows they cover."""

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_core

N = 400


def rows(ids, tag):
    ids = np.asarray(ids)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "tag": pa.array([f"{tag}{i % 5}" for i in ids]),
            "text": pa.array([f"word{i % 7} {tag}" for i in ids]),
            "other": pa.array(ids * 2, pa.int64()),
        }
    )


def update(dataset):
    dataset.update({"tag": "'new' || tag", "id": "id + 1000"}, where="id % 10 = 3")


def update_another_column(dataset):
    dataset.update({"other": "0"}, where="id < 150")


def upsert(dataset):
    builder = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    builder.execute(rows([*range(50, 60), *range(1000, 1010)], "m"))


def rewrite_columns(dataset):
    builder = dataset.merge_insert("id").when_matched_update_all().write_mode("rewrite_columns")
    builder.execute(rows(range(90, 120), "c").select(["id", "tag", "text"]))


def delete_others(dataset):
    builder = dataset.merge_insert("id").when_not_matched_by_source_delete("id > 100").when_not_matched_insert_all()
    builder.execute(rows([5, 200, 700], "d"))


def compact(dataset):
    dataset.optimize.compact_files()


def check(path):
    dataset = lance.dataset(path)
    dataset.validate()
    everything = dataset.to_table(use_scalar_index=False, columns=["id", "tag", "text", "other"]).to_pylist()
    for condition, matches in [
        ("id = 53", lambda row: row["id"] == 53),
        ("id >= 95 and id < 110", lambda row: 95 <= row["id"] < 110),
        ("id > 990", lambda row: row["id"] > 990),
        ("tag = 'c1'", lambda row: row["tag"] == "c1"),
        ("tag = 'newa3'", lambda row: row["tag"] == "newa3"),
        ("tag = 'a3'", lambda row: row["tag"] == "a3"),
        ("other = 0", lambda row: row["other"] == 0),
    ]:
        found = dataset.to_table(filter=condition, columns=["id", "tag", "text", "other"]).to_pylist()
        assert sorted(map(str, found)) == sorted(str(row) for row in everything if matches(row)), condition
    for word in ("word3", "c", "m"):
        found = dataset.to_table(full_text_query=word, columns=["id"])["id"].to_pylist()
        assert sorted(found) == sorted(row["id"] for row in everything if word in row["text"].split()), word


@pytest.mark.filterwarnings("ignore::lance_core.errors.IndexCoverageWarning")
@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable"])
@pytest.mark.parametrize(
    "changes",
    [
        [update, upsert],
        [upsert, rewrite_columns],
        [rewrite_columns, update_another_column, compact],
        [update_another_column, delete_others, update],
        [upsert, compact, update, rewrite_columns, upsert],
    ],
    ids=lambda changes: "-".join(change.__name__ for change in changes),
)
def test_indices_stay_right(tmp_path, changes, stable):
    path = tmp_path / "t"
    dataset = lance.write_dataset(rows(range(N), "a"), path, max_rows_per_file=100, enable_stable_row_ids=stable)
    dataset.create_scalar_index("id", "BTREE")
    dataset.create_scalar_index("tag", "BITMAP")
    dataset.create_scalar_index("text", "INVERTED")
    for change in changes:
        change(lance_core.dataset(path))
        check(path)
    lance.dataset(path).optimize.optimize_indices()
    check(path)
