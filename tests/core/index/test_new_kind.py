"""A new kind of index needs one class and one line in the registry: docs/contributing/add-an-index-kind.md tells it.

The kind keeps the last character of each text, and so answers conditions on whole texts: at most these rows match.
"""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lance_core
from lance_core.index.answer import of_rows
from lance_core.index.files import check_columns, read_columns
from lance_core.index.kinds import KINDS
from lance_core.index.protocol import SegmentContent
from lance_core.sql.pruning import Comparison
from lance_core.sql.ternary import FALSE, NULL

SCHEMA = pa.schema([pa.field("last", pa.string()), pa.field("row", pa.uint64(), nullable=False)])


NOTHING: Mapping[str, int] = {}


class LastCharacterSegment:
    options = statistics = NOTHING

    def __init__(self, last, rows):
        self.last, self.rows = last, rows

    def answer(self, question, *, tells_null):  # noqa: ARG002 rows that do not match may be false or null
        if not isinstance(question, Comparison) or question.operator != "equal":
            return None
        same = pc.equal(self.last, question.value.as_py()[-1:]).fill_null(fill_value=False)
        return of_rows(undecided=self.rows[np.asarray(same)], elsewhere=FALSE | NULL)


class LastCharacterKind:
    name = "LASTCHARACTER"
    type_url = "/example.LastCharacterIndexDetails"
    index_versions = frozenset({0})
    default_options = NOTHING

    def takes(self, kind):
        return pa.types.is_string(kind)

    def open(self, files, column):  # noqa: ARG002 part of the protocol
        reader = files.open("last.lance")
        check_columns(reader, SCHEMA, path=files.path("last.lance"))
        last, rows = read_columns(reader, SCHEMA.names, 0, reader.num_rows)
        return LastCharacterSegment(last, rows.to_numpy().astype(np.int64))

    def build(self, target, fragments, options):  # noqa: ARG002 as above
        batches = (
            pa.record_batch([pc.utf8_slice_codeunits(values, -1), rows.astype(np.uint64)], schema=SCHEMA)
            for fragment in fragments
            for rows, values in fragment.batches()
        )
        target.files.write("last.lance", SCHEMA, batches, metadata={})
        return SegmentContent(index_version=0, details=b"")


@pytest.mark.parametrize("stable", [False, True])
def test_a_new_kind_is_used_everywhere(tmp_path, monkeypatch, stable):
    monkeypatch.setitem(KINDS, LastCharacterKind.name, LastCharacterKind())
    rows = pa.table({"i": range(2000), "s": [f"row {i}" if i % 9 else None for i in range(2000)]})
    ours = lance_core.write_dataset(rows, tmp_path / "t", max_rows_per_file=1500, enable_stable_row_ids=stable)
    ours.create_scalar_index("s", "lastcharacter")
    assert "s_idx, 178 of 2,000 rows may match" in ours.scanner(filter="s = 'row 77'").explain_plan()
    assert ours.to_table(filter="s = 'row 77'")["i"].to_pylist() == [77]
    assert ours.count_rows("NOT (s = 'row 77') OR i = 77") == 2000 - 223
    lance_core.write_dataset(rows.slice(77, 2), ours, mode="append")
    ours.checkout_latest()
    assert ours.delete("s = 'row 77' AND i < 100")["num_deleted_rows"] == 2
    assert ours.optimize.optimize_indices() == ["s_idx"]
    assert ours.index_statistics("s_idx")["num_unindexed_rows"] == 0
    ours.drop_index("s_idx")
    assert ours.count_rows("s = 'row 77'") == 0
