"""Long random histories, each step by one of the two tools, held against a plain list of rows."""

import random

import lance
import pyarrow as pa
import pytest

import lance_core

SCHEMA = pa.schema({"id": pa.int64(), "day": pa.int32(), "text": pa.string(), "list": pa.list_(pa.int32())})


class History:
    """A table on disk and the rows it should have."""

    def __init__(self, place, seed, *, stable, version):
        self.place, self.random, self.next_id = place, random.Random(seed), 0
        self.rows = self.new_rows()
        tool = self.tool()
        options = {"enable_stable_row_ids": stable, "data_storage_version": version}
        tool.write_dataset(self.table(self.rows), place, max_rows_per_file=97, **options)
        self.kept = {1: list(self.rows)}

    def tool(self):
        return self.random.choice([lance_core, lance])

    def new_rows(self):
        made = []
        for _ in range(self.random.choice([1, 10, 200, 500])):
            number = self.next_id
            self.next_id += 1
            text = None if number % 7 == 3 else f"text {number % 13}"
            items = None if number % 5 == 1 else list(range(number % 4))
            made.append({"id": number, "day": number // 100 % 10, "text": text, "list": items})
        return made

    def table(self, rows):
        return pa.Table.from_pylist(rows, SCHEMA)

    def append(self):
        rows = self.new_rows()
        limit = self.random.choice([50, 1000])
        self.tool().write_dataset(self.table(rows), self.place, mode="append", max_rows_per_file=limit)
        self.rows += rows

    def condition(self):
        number, share = self.random.randrange(self.next_id), self.random.choice([2, 3, 50])
        return self.random.choice(
            [
                (f"id = {number}", lambda row: row["id"] == number),
                (f"id > {number} and id < {number} + 120", lambda row: number < row["id"] < number + 120),
                (f"id % {share} = 0", lambda row: row["id"] % share == 0),
                ("text is null", lambda row: row["text"] is None),
                (f"text = 'text {share}'", lambda row: row["text"] == f"text {share}"),
            ]
        )

    def delete(self):
        sql, matches = self.condition()
        self.tool().dataset(self.place).delete(sql)
        self.rows = [row for row in self.rows if not matches(row)]

    def replace(self):
        day, rows = self.random.randrange(10), self.new_rows()
        lance_core.dataset(self.place).replace_where(f"day = {day}", self.table(rows))
        self.rows = [row for row in self.rows if row["day"] != day] + rows

    def compact(self):
        target = self.random.choice([100, 300, 5000])
        self.tool().dataset(self.place).optimize.compact_files(target_rows_per_fragment=target)

    def materialize(self):
        lance_core.dataset(self.place).optimize.materialize_deletions(threshold=self.random.choice([0, 0.3]))

    def restore(self):
        version = self.random.choice(list(self.kept))
        self.tool().dataset(self.place, version).restore()
        self.rows = list(self.kept[version])

    def step(self):
        steps = [self.append, self.delete, self.delete, self.replace, self.compact, self.materialize, self.restore]
        self.random.choice(steps)()
        self.kept[lance_core.dataset(self.place).version] = list(self.rows)


def by_id(rows):
    return sorted(rows, key=lambda row: row["id"])


def check(history):
    ours, theirs = lance_core.dataset(history.place), lance.dataset(history.place)
    read = ours.to_table(with_row_id=True, with_row_address=True)
    assert read.equals(theirs.to_table(with_row_id=True, with_row_address=True))
    assert by_id(read.select(SCHEMA.names).to_pylist()) == by_id(history.rows)
    sql, matches = history.condition()
    assert by_id(ours.to_table(filter=sql).to_pylist()) == by_id(row for row in history.rows if matches(row))
    theirs.validate()


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize(("seed", "version"), [(0, "2.2"), (1, "2.2"), (2, "2.2"), (3, "2.1"), (4, "2.0")])
def test_histories(tmp_path, seed, version, stable):
    history = History(str(tmp_path / "t"), seed, stable=stable, version=version)
    for _ in range(15):
        history.step()
        check(history)
    for number, rows in history.kept.items():
        assert by_id(lance_core.dataset(history.place, number).to_table().to_pylist()) == by_id(rows)
