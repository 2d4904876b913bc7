"""Random changes of columns and rows, by either side in turns, against a model in plain Python."""

import random
from dataclasses import dataclass, field

import lance
import pyarrow as pa
import pytest

import lance_core

STEPS = 14


@dataclass
class Model:
    """Rows by id, and the Arrow type of each column."""

    seed: int
    place: str
    version: str
    rows: dict = field(default_factory=dict)
    types: dict = field(default_factory=lambda: {"id": pa.int64(), "a": pa.int64()})
    made: int = 0

    def __post_init__(self):
        self.random = random.Random(self.seed)
        self.log = []
        self.rows = {i: {"id": i, "a": i * 2} for i in range(40)}
        lance.write_dataset(
            self.table(self.rows.values()), self.place, max_rows_per_file=15, data_storage_version=self.version
        )

    def table(self, rows, names=None):
        names = names or list(self.types)
        schema = pa.schema([(name, self.types[name]) for name in names])
        return pa.Table.from_pylist([{name: one[name] for name in names} for one in rows], schema=schema)

    def new_name(self):
        self.made += 1
        return f"c{self.made}"

    def numbers(self):
        return [name for name, kind in self.types.items() if name != "id" and pa.types.is_integer(kind)]

    def add(self, name, kind, value):
        self.types[name] = kind
        for row in self.rows.values():
            row[name] = value(row)


def add_number(model, table):
    name, factor = model.new_name(), model.random.randint(2, 9)
    table.add_columns({name: f"id * {factor}"})
    model.add(name, pa.int64(), lambda row: row["id"] * factor)


def add_text(model, table):
    name = model.new_name()
    table.add_columns({name: "nullif(cast(id as string), '3')"})
    model.add(name, pa.string(), lambda row: None if row["id"] == 3 else str(row["id"]))


def add_null(model, table):
    name, kind = model.new_name(), model.random.choice([pa.int64(), pa.string(), pa.list_(pa.int8())])
    table.add_columns(pa.field(name, kind))
    model.add(name, kind, lambda _: None)


def join(model, table):
    name = model.new_name()
    keys = model.random.sample(sorted(model.rows), min(len(model.rows), 7))
    table.merge(pa.table({"key": keys, name: [[{"x": i}] for i in keys]}), left_on="id", right_on="key")
    kind = pa.list_(pa.struct([("x", pa.int64())]))
    model.add(name, kind, lambda row: [{"x": row["id"]}] if row["id"] in keys else None)


def rename(model, table):
    old, new = model.random.choice([name for name in model.types if name != "id"]), model.new_name()
    table.alter_columns({"path": old, "name": new})
    model.types = {new if name == old else name: kind for name, kind in model.types.items()}
    for row in model.rows.values():
        row[new] = row.pop(old)


def cast(model, table):
    if not model.numbers():
        return
    name = model.random.choice(model.numbers())
    model.types[name] = pa.int32() if model.types[name] == pa.int64() else pa.int64()
    table.alter_columns({"path": name, "data_type": model.types[name]})


def drop(model, table):
    if len(model.types) > 2:
        name = model.random.choice([name for name in model.types if name != "id"])
        table.drop_columns([name])
        del model.types[name]


def append(model, table):
    names = [name for name in model.types if name == "id" or model.random.random() < 0.6]
    model.random.shuffle(names)
    first = max(model.rows, default=0) + 1
    rows = [dict.fromkeys(model.types) | {"id": i} for i in range(first, first + 9)]
    for row in rows:
        for name in set(names) & set(model.numbers()):
            row[name] = row["id"] % 50
    module = lance if isinstance(table, lance.LanceDataset) else lance_core
    module.write_dataset(model.table(rows, names), model.place, mode="append")
    model.rows |= {row["id"]: row for row in rows}


def delete(model, table):
    step = model.random.randint(3, 8)
    table.delete(f"id % {step} = 1")
    model.rows = {i: row for i, row in model.rows.items() if i % step != 1}


def update(model, table):
    if model.numbers():
        name, step = model.random.choice(model.numbers()), model.random.randint(2, 5)
        table.update({name: "id + 1000"}, where=f"id % {step} = 0")
        for i, row in model.rows.items():
            if i % step == 0:
                row[name] = i + 1000


def compact(_, table):
    table.optimize.compact_files(target_rows_per_fragment=1000)


CHANGES = [add_number, add_text, add_null, join, rename, cast, drop, append, delete, update, compact]


@pytest.mark.parametrize("seed", range(6))
def test_random_changes(tmp_path, seed):
    model = Model(seed=seed, place=str(tmp_path / "t"), version=["2.2", "2.1", "2.0"][seed % 3])
    for _ in range(STEPS):
        change, module = model.random.choice(CHANGES), model.random.choice([lance, lance_core])
        model.log.append(f"{change.__name__} by {module.__name__}")
        change(model, module.dataset(model.place))
        expected = model.table(model.rows[i] for i in sorted(model.rows))
        for reader in (lance, lance_core):
            table = reader.dataset(model.place).to_table().sort_by("id")
            assert table.schema.names == list(model.types), model.log
            assert table.to_pydict() == expected.to_pydict(), (reader.__name__, model.log)
            assert table.schema.types == expected.schema.types, model.log
        condition = f"{model.random.choice(list(model.types))} is null or id > 20"
        counts = [reader.dataset(model.place).count_rows(filter=condition) for reader in (lance, lance_core)]
        assert counts[0] == counts[1], (condition, model.log)
    lance.dataset(model.place).validate()
