"""Random changes to a table, held against a dict: values by key, and what becomes of row ids and row versions."""

import uuid

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lance_core

KEYS = st.integers(0, 12)
SOURCES = st.lists(KEYS, max_size=6, unique=True)
SYSTEM = ["_rowid", "_row_created_at_version", "_row_last_updated_at_version"]


def rows(keys, value, columns=("k", "v", "w")):
    table = pa.table({"k": pa.array(keys, pa.int64()), "v": [value] * len(keys), "w": [value] * len(keys)})
    return table.cast(pa.schema({"k": pa.int64(), "v": pa.int64(), "w": pa.int64()})).select(list(columns))


class Model:
    """Rows by key: v, w, row id, version of creation, version of the last change."""

    def __init__(self, stable):
        self.stable, self.rows, self.next_id, self.version = stable, {}, 0, 1
        self.dataset = lance_core.write_dataset(
            rows([], 0), f"memory://model-{uuid.uuid4()}", enable_stable_row_ids=stable
        )
        self.kept = [(1, set())]

    def insert(self, keys, value, other):
        for key in keys:
            self.rows[key] = [value, other, self.next_id, self.version, self.version]
            self.next_id += 1

    def change(self, key, **values):
        row = self.rows[key]
        row[0], row[1], row[4] = values.get("v", row[0]), values.get("w", row[1]), self.version

    def check(self):
        assert self.dataset.version == self.version
        columns = ["k", "v", "w", *(SYSTEM if self.stable else [])]
        found = self.dataset.to_table(columns=columns).to_pylist()
        expected = {key: dict(zip(columns, [key, *row], strict=False)) for key, row in self.rows.items()}
        assert {row["k"]: row for row in found} == expected
        assert len(found) == len(expected)
        if self.stable:
            self.check_ids_and_delta()
        self.kept.append((self.version, {row[2] for row in self.rows.values()}))

    def check_ids_and_delta(self):
        ids = [row[2] for row in self.rows.values()]
        taken = self.dataset._take_rows([*ids, self.next_id], columns=["k", "_rowid"]).to_pylist()
        assert [(row["k"], row["_rowid"]) for row in taken] == list(zip(self.rows, ids, strict=True))
        since, before = self.kept[len(self.kept) // 2]
        delta = self.dataset.delta(since)
        inserted = {key for key, row in self.rows.items() if row[3] > since}
        updated = {key for key, row in self.rows.items() if row[3] <= since < row[4]}
        assert set(delta.get_inserted_rows().read_all()["k"].to_pylist()) == inserted
        assert set(delta.get_updated_rows().read_all()["k"].to_pylist()) == updated
        assert set(delta.get_deleted_row_ids().read_all()["_rowid"].to_pylist()) == before - set(ids)


def append(model, keys):
    new = [key for key in keys if key not in model.rows]
    model.version += 1
    lance_core.write_dataset(rows(new, model.version), model.dataset.uri, mode="append", max_rows_per_file=3)
    model.dataset = model.dataset.reopened()
    model.insert(new, model.version, model.version)


def update(model, low):
    model.version += 1
    result = model.dataset.update({"v": "w + 1", "w": "k"}, where=f"k >= {low} and k < {low + 4}")
    hit = [key for key in model.rows if low <= key < low + 4]
    assert result == {"num_rows_updated": len(hit)}
    for key in hit:
        other = model.rows[key][1]
        model.change(key, v=None if other is None else other + 1, w=key)


def delete(model, low):
    model.version += 1
    model.dataset.delete(f"k % 5 = {low % 5}")
    model.rows = {key: row for key, row in model.rows.items() if key % 5 != low % 5}


def upsert(model, keys, *, partial):
    model.version += 1
    source = rows(keys, model.version, ("v", "k") if partial else ("k", "v", "w"))
    builder = model.dataset.merge_insert("k").when_matched_update_all().when_not_matched_insert_all()
    result = builder.execute(source)
    old = [key for key in keys if key in model.rows]
    assert (result["num_updated_rows"], result["num_inserted_rows"]) == (len(old), len(keys) - len(old))
    for key in old:
        model.change(key, v=model.version, **({} if partial else {"w": model.version}))
    # new rows get their ids in the order of the source
    model.insert([key for key in keys if key not in old], model.version, None if partial else model.version)


def rewrite_columns(model, keys):
    model.version += 1
    builder = model.dataset.merge_insert("k").when_matched_update_all().write_mode("rewrite_columns")
    builder.execute(rows(keys, model.version, ("k", "w")))
    for key in keys:
        if key in model.rows:
            model.change(key, w=model.version)


def replace(model, keys):
    model.version += 1
    builder = model.dataset.merge_insert("k").when_matched_update_all("source.k > 3").when_not_matched_insert_all()
    builder.when_not_matched_by_source_delete("k < 8").execute(rows(keys, model.version))
    old = [key for key in keys if key in model.rows]
    model.rows = {key: row for key, row in model.rows.items() if key in keys or key >= 8}
    for key in old:
        if key > 3:
            model.change(key, v=model.version, w=model.version)
    model.insert([key for key in keys if key not in old], model.version, model.version)


def compact(model, _):
    model.dataset.optimize.compact_files()
    model.version = model.dataset.version


def overwrite(model, keys):
    """New rows; ids go on."""
    model.version += 1
    lance_core.write_dataset(rows(keys, model.version), model.dataset.uri, mode="overwrite")
    model.dataset = model.dataset.reopened()
    model.rows = {}
    model.insert(keys, model.version, model.version)


def steps():
    return st.one_of(
        st.tuples(st.just(append), SOURCES),
        st.tuples(st.just(update), KEYS),
        st.tuples(st.just(delete), KEYS),
        st.tuples(st.just(lambda model, keys: upsert(model, keys, partial=False)), SOURCES),
        st.tuples(st.just(lambda model, keys: upsert(model, keys, partial=True)), SOURCES),
        st.tuples(st.just(rewrite_columns), SOURCES),
        st.tuples(st.just(replace), SOURCES),
        st.tuples(st.just(compact), st.none()),
        st.tuples(st.just(overwrite), SOURCES),
    )


@pytest.mark.slow
@given(st.booleans(), st.lists(steps(), min_size=3, max_size=10))
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_changes_do_what_a_dict_does(stable, changes):
    model = Model(stable)
    for change, argument in changes:
        change(model, argument)
        model.check()
