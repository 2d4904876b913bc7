"""The audit of indices finds what is missing, stale or wrong, names the rows, and raises no false alarm."""

import os
import random
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import lance_core
from lance_core.change.retries import commit_options, commit_work
from lance_core.format.index.row_sets import row_set_of
from lance_core.format.table.index_metadata import index_fields, make_index
from lance_core.format.table.operations import CreateIndex
from lance_core.scan.indexed import open_segment
from lance_core.scan.open_files import OpenFiles
from lance_core.sql.pruning import Comparison, HasItems, IsNull, Membership
from lance_core.store.memory import memory_store

pytestmark = pytest.mark.filterwarnings("ignore::lance_core.errors.IndexCoverageWarning")

NUM_TABLES = int(os.environ.get("LANCE_TESTS_EXAMPLES", "10000")) if os.environ.get("LANCE_TESTS") == "deep" else 20
FIRST_SEED = int(os.environ.get("LANCE_TESTS_SEED", "0"))
KINDS = {"b": "BITMAP", "c": "BLOOMFILTER", "k": "BTREE", "l": "LABEL_LIST", "s": "NGRAM", "z": "ZONEMAP"}


FOLDERS = ("data", "_indices", "_deletions", "_transactions", "_versions")


def rows(rng, count, start=0):
    def some(make):
        return [None if rng.random() < 0.1 else make() for _ in range(count)]

    return pa.table(
        {
            "row": pa.array(range(start, start + count), pa.int64()),
            "k": pa.array(some(lambda: rng.randrange(50)), pa.int64()),
            "b": pa.array(some(lambda: rng.choice("abc")), pa.string()),
            "c": pa.array(some(lambda: rng.choice([0.0, -0.0, 1.5, float("nan"), rng.random()])), pa.float64()),
            "l": pa.array(some(lambda: [rng.choice(["x", "y", None])] * rng.randrange(3)), pa.list_(pa.string())),
            "s": pa.array(some(lambda: f"wörd {rng.randrange(90)} straße"), pa.string()),
            "z": pa.array(some(lambda: rng.randrange(1000)), pa.int32()),
        }
    )


def make(path, *, stable=False, seed=0, kinds=KINDS, num_rows=300, fragment_rows=100):
    table = lance_core.write_dataset(
        rows(random.Random(seed), num_rows), path, max_rows_per_file=fragment_rows, enable_stable_row_ids=stable
    )
    for column, kind in kinds.items():
        table.create_scalar_index(column, kind)
    return table


def problems(table, **arguments):
    report = lance_core.verify(table.uri, level="indices", **arguments)
    return {(problem.index_name, problem.fragment_id) for problem in report.problems if problem.index_name}


CHANGES = [
    lambda table, rng: lance_core.write_dataset(rows(rng, 30, 1000), table, mode="append"),
    lambda table, _: table.delete("row % 7 = 2"),
    lambda table, _: table.update({"k": "3", "s": "'other text'", "b": "'z'"}, where="row % 10 = 4"),
    lambda table, _: table.optimize.optimize_indices(),
    lambda table, _: table.optimize.compact_files(),
    lambda table, _: table.merge_insert("row").when_matched_update_all().execute(pa.table({"row": [5], "k": [7]})),
]


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("stable", [False, True])
def test_no_false_alarm_on_random_tables(stable):
    """LANCE_TESTS=deep looks at 10,000; LANCE_TESTS_SEED begins elsewhere."""
    for seed in range(FIRST_SEED, FIRST_SEED + NUM_TABLES // 2):
        rng = random.Random(seed)
        kinds = dict(rng.sample(sorted(KINDS.items()), 2))
        num_rows, fragment_rows = rng.choice([0, 7, 40, 90]), rng.choice([15, 40, 100])
        uri = f"memory://audit-{stable}-{seed}"
        table = make(uri, stable=stable, seed=seed, kinds=kinds, num_rows=num_rows, fragment_rows=fragment_rows)
        for change in rng.sample(CHANGES, 3):
            change(table, rng)
            table.checkout_latest()
        for sample_rows in (None, 20):
            report = table.verify(level="indices", sample_rows=sample_rows)
            assert report.is_ok, (seed, str(report))
        memory_store(uri).delete([info.path for folder in FOLDERS for info in memory_store(uri).list(folder)])


def put_folder(table, name, files):
    """Let an index have the files of another folder."""
    entry = next(index for index in table.describe_indices() if index.name == name)
    folder = Path(table.uri, "_indices", entry.segments[0].uuid)
    shutil.rmtree(folder)
    shutil.copytree(files, folder)


def folder_of(table, name):
    entry = next(index for index in table.describe_indices() if index.name == name)
    return Path(table.uri, "_indices", entry.segments[0].uuid)


@pytest.mark.slow
@pytest.mark.parametrize("column", KINDS)
@pytest.mark.parametrize("stable", [False, True])
def test_files_of_other_rows_are_found(tmp_path, stable, column):
    """Values changed in place, rows that moved, or ids that came back: the files no longer fit the rows."""
    table = make(tmp_path / "t", stable=stable, kinds={column: KINDS[column]})
    other = make(tmp_path / "other", stable=stable, seed=1, kinds={column: KINDS[column]})
    assert problems(table) == set()
    put_folder(table, f"{column}_idx", folder_of(other, f"{column}_idx"))
    if column == "c":  # filters of random values
        assert {name for name, _ in problems(table)} == {"c_idx"}
    elif column != "z":
        assert problems(table) == {(f"{column}_idx", fragment_id) for fragment_id in range(3)}
        assert problems(table, sample_rows=300) != set()
    assert lance_core.repair(table.uri).get(f"{column}_idx", "rebuilt") == "rebuilt"
    assert problems(table) == set()


@pytest.mark.slow
@pytest.mark.parametrize("column", ["b", "k", "l", "s"])
def test_missing_entries_are_found(tmp_path, column):
    """The entry of an index says that it covers a fragment that its files do not have."""
    table = make(tmp_path / "t", kinds={column: KINDS[column]})
    part = make(tmp_path / "part", kinds={})
    part.create_scalar_index(column, KINDS[column], fragment_ids=[0, 2])
    put_folder(table, f"{column}_idx", folder_of(part, f"{column}_idx"))
    report = lance_core.verify(table.uri, level="indices")
    assert {problem.fragment_id for problem in report.problems if problem.index_name} == {1}
    assert "offsets 0, 1" in str(report)
    assert lance_core.repair(table.uri) == {f"{column}_idx": "rebuilt"}


def test_damaged_and_missing_files_are_found(tmp_path):
    table = make(tmp_path / "t", kinds={"k": "BTREE", "b": "BITMAP"})
    next(folder_of(table, "b_idx").iterdir()).write_bytes(b"no Lance file")
    shutil.rmtree(folder_of(table, "k_idx"))
    for condition, name, error in (("b = 'a'", "b_idx", "CorruptDataError"), ("k = 3", "k_idx", "NotFoundError")):
        with pytest.raises(
            getattr(lance_core.errors, error), match=rf"index '{name}' is damaged.*drop_index\('{name}'\)"
        ):
            lance_core.dataset(table.uri).to_table(filter=condition)
    assert {name for name, _ in problems(table)} >= {"b_idx", "k_idx"}
    assert lance_core.repair(table.uri) == {"b_idx": "rebuilt", "k_idx": "rebuilt"}
    assert problems(table) == set()


@pytest.mark.parametrize(
    ("column", "question"),
    [
        ("b", Membership("b", pa.array(["a", "c"]))),
        ("b", Comparison("b", "not_equal", pa.scalar("a"))),
        ("b", IsNull("b")),
        ("l", HasItems("l", pa.array(["x"]), needs_all=False)),
    ],
)
def test_a_sample_is_answered_without_the_rows_around_it(tmp_path, column, question):
    table = make(tmp_path / "t", num_rows=3_000, fragment_rows=1_000)
    manifest, files = table.snapshot.manifest, OpenFiles(table.snapshot.store)
    (index,) = [index for index in manifest.indices if index.name == f"{column}_idx"]
    opened = open_segment(manifest, files, index)
    whole = opened.answer(question, None)
    for fragment_id in (0, 2):
        sample = np.arange(200, 300) + (fragment_id << 32)
        some = opened.answer(question, row_set_of(sample))
        assert (some.at(sample) == whole.at(sample)).all()
        assert len(some.bounds) <= 100 + 6 < len(whole.bounds), "three fragments have two bounds each"


def test_a_sample_blames_the_index_whose_column_is_damaged(tmp_path):
    table = make(tmp_path / "t", kinds={"k": "BTREE"})
    before = {info.path for info in table.snapshot.store.list("data")}
    table.add_columns({"y": "row + 1"})
    table.create_scalar_index("y", "BTREE")
    assert problems(table, sample_rows=300) == set()
    for info in list(table.snapshot.store.list("data")):
        if info.path not in before:
            table.snapshot.store.put(info.path, b"damaged" * 100)
    assert {name for name, _ in problems(table, sample_rows=300)} == {"y_idx"}


def test_unknown_kinds_are_left_alone(tmp_path):
    table = make(tmp_path / "t", kinds={"k": "BTREE"})
    old = table.snapshot.manifest.indices
    new = [make_index(replace(index_fields(index), index_version=99)) for index in old]

    class Work:
        sees_new_rows = False

        def prepare(self, _):
            return CreateIndex(new_indices=tuple(new), removed_indices=old)

        def forget(self):
            pass

    commit_work(table.snapshot, Work(), commit_options())
    table.checkout_latest()
    assert problems(table) == set()
    assert [index["name"] for index in table.list_indices()] == ["k_idx"]
    assert "no index is used" in table.scanner(filter="k = 3").explain_plan()
    assert table.count_rows("k = 3") == len(table.to_table(filter="k = 3", use_scalar_index=False))
    assert lance_core.repair(table.uri) == {}


def test_zeros_of_both_signs_are_no_false_alarm(tmp_path):
    """A zone of nothing but 0.0 equals -0.0, which another row has."""
    values = pa.array([0.0] * 8 + [-0.0, 1.0], pa.float64())
    table = lance_core.write_dataset(pa.table({"z": values, "h": values.cast(pa.float16())}), tmp_path / "t")
    for column in ("z", "h"):
        table.create_scalar_index(column, "ZONEMAP", rows_per_zone=8)
        assert table.count_rows(f"{column} = -0.0") == 9
    assert lance_core.verify(table.uri, level="indices").is_ok
