"""Indices whose entries are stable row ids: answers are translated to where the rows are now.

B-trees of version 0 on tables with stable row ids are such, as pylance wrote them before version 14.
"""

import uuid
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest

import lance_core
from lance_core.change.retries import commit_options, commit_work
from lance_core.format.index.btree import TYPE_URL
from lance_core.format.table.index_metadata import IndexFields, make_index
from lance_core.format.table.operations import CreateIndex
from lance_core.index.column import column_to_index
from lance_core.index.files import SegmentFiles
from lance_core.index.protocol import SegmentTarget
from lance_core.index.scalar.btree_build import write_btree


@dataclass
class OldBTree:
    """Writes a B-tree of row ids over column ``x``."""

    rows: pa.Table
    sees_new_rows: bool = False

    def prepare(self, snapshot):
        identity = uuid.uuid4()
        files = SegmentFiles(snapshot.store, f"_indices/{identity}")
        ids = self.rows["_rowid"].to_numpy().astype(np.int64)
        values = self.rows["x"].combine_chunks()
        column = column_to_index(snapshot.manifest.schema, "x")
        write_btree(SegmentTarget(files=files, column=column, with_stable_row_ids=False), [(values, ids)])
        entry = make_index(
            IndexFields(
                uuid=identity.bytes,
                name="x_idx",
                fields=(snapshot.manifest.schema.fields[0].id,),
                dataset_version=snapshot.version,
                fragment_ids=frozenset(snapshot.manifest.fragments.ids.tolist()),
                files=tuple(files.written.items()),
                details=(TYPE_URL, b""),
            )
        )
        return CreateIndex(new_indices=(entry,))

    def forget(self):
        """Leave the files."""


@pytest.fixture
def dataset(tmp_path):
    rows = pa.table({"x": [None if i % 100 == 0 else i * 37 % 501 for i in range(3000)], "y": range(3000)})
    made = lance_core.write_dataset(rows, tmp_path / "t", max_rows_per_file=700, enable_stable_row_ids=True)
    made.snapshot = commit_work(made.snapshot, OldBTree(made.to_table(with_row_id=True)), commit_options())
    return made


CHANGES = {
    "nothing": lambda _: None,
    "delete": lambda dataset: dataset.delete("y % 3 = 1 OR x = 9"),
    "move rows": lambda dataset: dataset.update({"y": "y + 10000"}, where="y % 4 = 0"),
    "change values": lambda dataset: dataset.update({"x": "7"}, where="y % 50 = 0"),
    "compact": lambda dataset: (dataset.delete("y % 5 = 0"), dataset.optimize.compact_files()),
    "move and compact": lambda dataset: (
        dataset.update({"y": "y + 10000"}, where="y % 4 = 0"),
        dataset.optimize.compact_files(),
    ),
    "append and extend": lambda dataset: (
        lance_core.write_dataset(pa.table({"x": [7, None], "y": [-1, -2]}), dataset, mode="append"),
        dataset.checkout_latest(),
        dataset.optimize.optimize_indices(),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
def test_answers_are_those_of_a_scan(dataset, change):
    CHANGES[change](dataset)
    for condition in ("x = 7", "x IN (8, 9, 600)", "x < 3 OR x IS NULL", "NOT (x > 4)", "x = 7 AND y % 2 = 1"):
        scanner = dataset.scanner(filter=condition, with_row_id=True)
        expected = dataset.to_table(filter=condition, with_row_id=True, use_scalar_index=False)
        assert scanner.to_table() == expected, condition
        assert dataset.count_rows(condition) == len(expected), condition
    assert "index: x_idx" in dataset.scanner(filter="x = 7").explain_plan()


def test_compaction_keeps_the_coverage(dataset):
    dataset.optimize.compact_files()
    assert dataset.index_statistics("x_idx")["num_unindexed_rows"] == 0
    assert "6 of 3,000 rows match" in dataset.scanner(filter="x = 7").explain_plan()
