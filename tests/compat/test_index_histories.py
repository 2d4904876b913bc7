"""Random histories of a table with indices, by both libraries in turns: after each step indices answer as scans.

LANCE_TESTS=deep python -m pytest tests/compat/test_index_histories.py        500 histories
LANCE_TESTS_SEED=1000 LANCE_TESTS=deep ...                                     others
"""

import os
import random
from datetime import timedelta

import lance
import pyarrow as pa
import pytest

import lance_core
from lance_core.change.fragment_reuse import ReuseState

pytestmark = [
    pytest.mark.filterwarnings("ignore::lance_core.errors.IndexCoverageWarning"),
    pytest.mark.filterwarnings("ignore:The 'list_indices' method is deprecated:DeprecationWarning"),
]

IS_DEEP = os.environ.get("LANCE_TESTS") == "deep"
SEED = int(os.environ.get("LANCE_TESTS_SEED", "0"))
HISTORIES = int(os.environ.get("LANCE_TESTS_EXAMPLES", "500")) if IS_DEEP else 4
STEPS, CONDITIONS, AUDIT_EVERY = 14, 6, 3

WORDS = ["apple", "Pear", "plum42", "straße", "cherry pie", "fig"]
COLUMNS = {
    "BTREE": ["id", "k", "b", "s", "z", "c"],
    "BITMAP": ["k", "b", "z"],
    "LABEL_LIST": ["l"],
    "NGRAM": ["s"],
    "BLOOMFILTER": ["id", "k", "b", "c"],
    "ZONEMAP": ["id", "k", "b", "z", "c"],
}
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("k", pa.int64()),
        pa.field("b", pa.string()),
        pa.field("s", pa.string()),
        pa.field("l", pa.list_(pa.string())),
        pa.field("z", pa.float64()),
        pa.field("c", pa.int32()),
        pa.field("other", pa.int64()),
    ]
)


def new_row(rng, key):
    row = {
        "id": key,
        "k": rng.randrange(12),
        "b": rng.choice("abc"),
        "s": " ".join(rng.choice(WORDS) for _ in range(rng.randrange(3))),
        "l": [rng.choice(["x", "y", "w"]) for _ in range(rng.randrange(3))],
        "z": rng.choice([0.0, -0.0, 1.5, float("nan"), -2.0, float(rng.randrange(9))]),
        "c": rng.randrange(200),
        "other": 0,
    }
    return {name: None if name not in {"id", "other"} and rng.random() < 0.12 else value for name, value in row.items()}


class History:
    """A table, what it must hold, and what happened to it."""

    def __init__(self, folder, seed):
        self.rng = rng = random.Random(seed)
        self.uri = str(folder / "t")
        self.next_key = self.checks = 0
        self.kept = {}
        self.stable = rng.random() < 0.5
        self.log = [("create", self.stable)]
        self.rows = {row["id"]: row for row in self.new_rows(rng.choice([0, 20, 60]))}
        self.rng.choice([lance, lance_core]).write_dataset(
            self.table(self.rows.values()),
            self.uri,
            max_rows_per_file=rng.choice([10, 25, 100]),
            enable_stable_row_ids=self.stable,
        )
        for kind in COLUMNS:
            if rng.random() < 0.6:
                self.index(kind)

    def new_rows(self, count):
        self.next_key += count
        return [new_row(self.rng, key) for key in range(self.next_key - count, self.next_key)]

    def table(self, rows, names=None):
        schema = SCHEMA if names is None else pa.schema([SCHEMA.field(name) for name in names])
        return pa.Table.from_pylist([{name: row[name] for name in schema.names} for row in rows], schema=schema)

    def open(self, version=None):
        """The table, opened by one of the libraries."""
        library = self.rng.choice([lance_core, lance])
        self.log.append(library.__name__)
        return library.dataset(self.uri, version=version)

    # ------------------------------------------------------------------------------------------------------- changes

    def index(self, kind=None):
        kind = kind or self.rng.choice(sorted(COLUMNS))
        column = self.rng.choice(COLUMNS[kind])
        self.log.append(("index", kind, column))
        table = self.open()
        table.create_scalar_index(column, kind, name=f"{column}_{kind}", replace=True)
        self.repair_after(table)

    def drop_index(self):
        names = {index["name"] for index in lance_core.dataset(self.uri).list_indices()} - {"__lance_frag_reuse"}
        if names:
            name = self.rng.choice(sorted(names))
            self.log.append(name)
            self.open().drop_index(name)

    def optimize_indices(self):
        options = self.rng.choice([{}, {}, {"num_indices_to_merge": 0}, {"num_indices_to_merge": 1}, {"retrain": True}])
        self.log.append(options)
        table = self.open()
        if self.stable and isinstance(table, lance.LanceDataset):
            options = {}  # pylance 14.0.2 keeps stale entries otherwise: see test_audit_of_pylance
        table.optimize.optimize_indices(**options)
        self.repair_after(table)

    def repair_after(self, table):
        """Repair what pylance 14.0.2 makes wrong: stale nulls, and zones of NaN only; see test_audit_of_pylance."""
        if not isinstance(table, lance.LanceDataset):
            return
        told = [problem.message for problem in lance_core.dataset(self.uri).verify(level="indices").problems]
        if any(text in message for message in told for text in ("zones overlap", "stale nulls", "leaves out NaN")):
            lance_core.repair(self.uri)

    def append(self):
        rows = self.new_rows(self.rng.choice([1, 5, 30]))
        self.rows |= {row["id"]: row for row in rows}
        library = self.rng.choice([lance_core, lance])
        self.log.append(library.__name__)
        library.write_dataset(self.table(rows), self.uri, mode="append", max_rows_per_file=self.rng.choice([10, 100]))

    def overwrite(self):
        self.rows = {}
        rows = self.new_rows(self.rng.choice([0, 30]))
        self.rows = {row["id"]: row for row in rows}
        library = self.rng.choice([lance_core, lance])
        self.log.append(library.__name__)
        library.write_dataset(self.table(rows), self.uri, mode="overwrite", max_rows_per_file=10)

    def some(self):
        """A condition and the same in Python."""
        number, step = self.rng.randrange(12), self.rng.randrange(2, 7)
        low = self.rng.randrange(self.next_key + 1)
        return self.rng.choice(
            [
                (f"k = {number}", lambda row: row["k"] == number),
                (f"id % {step} = 1", lambda row: row["id"] % step == 1),
                (f"id >= {low} AND id < {low + 12}", lambda row: low <= row["id"] < low + 12),
                (f"id IN ({low}, {low + 1}, {low + 7})", lambda row: row["id"] in {low, low + 1, low + 7}),
                ("b = 'a'", lambda row: row["b"] == "a"),
                ("array_has(l, 'x')", lambda row: row["l"] is not None and "x" in row["l"]),
                ("contains(s, 'apple')", lambda row: row["s"] is not None and "apple" in row["s"]),
                ("c = 7 OR k IS NULL", lambda row: row["c"] == 7 or row["k"] is None),
            ]
        )

    def delete(self):
        sql, matches = self.some()
        self.log.append(sql)
        self.open().delete(sql)
        self.rows = {key: row for key, row in self.rows.items() if not matches(row)}

    def update(self):
        sql, matches = self.some()
        changes = self.rng.choice(
            [{"k": 3}, {"b": "a"}, {"k": None, "s": "apple fig"}, {"other": 1}, {"c": 7, "z": 1.5}, {"b": "new"}]
        )
        self.log.append((sql, changes))
        literals = {name: "NULL" if value is None else repr(value) for name, value in changes.items()}
        self.open().update(literals, where=sql)
        self.rows = {key: row | changes if matches(row) else row for key, row in self.rows.items()}

    def merge(self):
        """Upsert whole rows, or some columns of rows that are there, which rewrites these columns."""
        old = self.rng.sample(sorted(self.rows), min(len(self.rows), self.rng.choice([1, 6])))
        names = self.rng.choice([None, None, ["id", "k"], ["s", "id", "b"], ["l", "id"]])
        given = [new_row(self.rng, key) for key in old]
        form = "update" if names else self.rng.choice(["upsert", "insert", "update", "delete", "replace"])
        if form in {"upsert", "insert", "replace"}:
            given += self.new_rows(self.rng.choice([1, 8]))
        if not given:
            return
        self.log.append((form, names, old))
        builder = self.open().merge_insert("id")
        if form in {"upsert", "update", "replace"}:
            builder.when_matched_update_all()
        if form in {"upsert", "insert", "replace"}:
            builder.when_not_matched_insert_all()
        if form == "delete":
            builder.when_matched_delete()
        if form == "replace":
            builder.when_not_matched_by_source_delete("k = 2")
        builder.execute(self.table(given, names))
        taken = {row["id"]: {name: row[name] for name in names or SCHEMA.names} for row in given}
        if form == "delete":
            self.rows = {key: row for key, row in self.rows.items() if key not in taken}
            return
        if form == "replace":
            self.rows = {key: row for key, row in self.rows.items() if key in taken or row["k"] != 2}
        if form != "insert":
            self.rows = {key: row | taken.get(key, {}) for key, row in self.rows.items()}
        if form != "update":
            self.rows |= {key: row for key, row in taken.items() if key not in self.rows}

    def replace_where(self):
        sql, matches = self.some()
        self.log.append(sql)
        rows = self.new_rows(5)
        lance_core.dataset(self.uri).replace_where(sql, self.table(rows))
        self.rows = {key: row for key, row in self.rows.items() if not matches(row)}
        self.rows |= {row["id"]: row for row in rows}

    def compact(self):
        options = {"target_rows_per_fragment": self.rng.choice([20, 60, 1 << 20])}
        table = self.open()
        # pylance 14.0.2 loses rows if it does not defer again: see test_fragment_reuse
        must_defer = isinstance(table, lance.LanceDataset) and self.has_deferred()
        if not self.stable and (must_defer or self.rng.random() < 0.3):
            options["defer_index_remap"] = True
        self.log.append(options)
        table.optimize.compact_files(**options)

    def has_deferred(self):
        state = ReuseState.of(lance_core.dataset(self.uri).snapshot)
        return state is not None and bool(state.versions)

    def materialize(self):
        lance_core.dataset(self.uri).optimize.materialize_deletions(threshold=self.rng.choice([0, 0.2]))

    def change_columns(self):
        """Add and drop another column; indices stay."""
        table = self.open()
        name = "added"
        if name in table.schema.names:
            table.drop_columns([name])
        else:
            table.add_columns({name: "k + 1"})

    def restore(self):
        version = self.rng.choice(sorted(self.kept))
        self.log.append(version)
        self.open(version).restore()
        self.rows = dict(self.kept[version])

    def clean_up(self):
        self.open().cleanup_old_versions(older_than=timedelta(0), retain_versions=2)

    # -------------------------------------------------------------------------------------------------------- checks

    def step(self):
        changes = [self.append, self.delete, self.update, self.update, self.merge, self.merge, self.merge, self.compact]
        changes += [self.compact, self.optimize_indices, self.optimize_indices, self.index, self.drop_index]
        changes += [self.materialize, self.change_columns, self.restore, self.replace_where, self.clean_up]
        change = self.rng.choice([*changes, self.overwrite] if self.rng.random() < 0.3 else changes)
        self.log.append(change.__name__)
        if change == self.merge and "added" in lance_core.dataset(self.uri).schema.names:
            return
        if change in (self.append, self.replace_where) and "added" in lance_core.dataset(self.uri).schema.names:
            return
        change()
        self.check()

    def check(self):
        ours, theirs = lance_core.dataset(self.uri), lance.dataset(self.uri)
        self.kept[ours.version] = dict(self.rows)
        self.kept = {version: rows for version, rows in self.kept.items() if version in self.versions(ours)}
        expected = self.table(self.rows[key] for key in sorted(self.rows))
        read = ours.to_table(columns=SCHEMA.names).sort_by("id")
        assert repr(read.to_pylist()) == repr(expected.to_pylist()), self.log
        for condition in self.rng.sample(QUESTIONS, CONDITIONS):
            keys = ours.to_table(columns=["id"], filter=condition, use_scalar_index=False)["id"].to_pylist()
            assert ours.to_table(columns=["id"], filter=condition)["id"].to_pylist() == keys, (condition, self.log)
            assert ours.count_rows(condition) == len(keys), (condition, self.log)
            found = theirs.to_table(columns=["id"], filter=condition)["id"].to_pylist()
            assert sorted(found) == sorted(keys), ("pylance", condition, self.log)
        self.checks += 1
        if self.checks % AUDIT_EVERY == 0:
            report = ours.verify(level="indices")
            assert report.is_ok, (str(report), self.log)

    @staticmethod
    def versions(table):
        return {version["version"] for version in table.versions()}


QUESTIONS = [
    "id = 5",
    "id IN (1, 3, 30, 31)",
    "id >= 10 AND id < 30",
    "id > 100000 OR id = 2",
    "k = 3",
    "k <> 3",
    "k IS NULL",
    "NOT (k < 5)",
    "k BETWEEN 2 AND 4 AND b = 'a'",
    "b = 'a'",
    "b IN ('b', 'new') OR k = 1",
    "b IS NOT NULL AND NOT (b = 'c')",
    "s = 'apple fig'",
    "s LIKE 'apple%'",
    "contains(s, 'apple')",
    "contains(s, 'straß') OR contains(s, 'um42')",
    "NOT contains(s, 'erry')",
    "s IS NULL",
    "array_has(l, 'x')",
    "array_has_any(l, ['x', 'w']) AND k = 2",
    "array_has_all(l, ['x', 'y'])",
    "NOT array_has(l, 'x')",
    "l IS NULL",
    "z > 1.0",
    "z = 1.5 OR z IS NULL",
    "NOT (z <= 3.0)",
    "c = 7",
    "c IN (7, 50, 120) OR c IS NULL",
    "c < 20 AND NOT (k = 3)",
]


@pytest.mark.timeout(0 if IS_DEEP else 120)
@pytest.mark.parametrize("seed", range(SEED, SEED + HISTORIES))
def test_indices_answer_as_scans_after_every_step(tmp_path, seed):
    history = History(tmp_path, seed)
    history.check()
    for _ in range(STEPS):
        history.step()
