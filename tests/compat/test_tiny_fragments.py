"""Fragments of a row or a few, of which one file is opened for all that are alike."""

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_core

NUM_ROWS = 90
ASKED = ({}, {"filter": "gap > 0.5"}, {"filter": "n < 40 AND word > 'wwww'"}, {"columns": ["twice", "vector"]})


def rows():
    rng = np.random.default_rng(3)
    return pa.table(
        {
            "n": np.arange(NUM_ROWS),
            "word": pa.array(["w" * int(size) for size in rng.integers(0, 150, NUM_ROWS)]),
            "gap": pa.array(rng.random(NUM_ROWS), mask=rng.random(NUM_ROWS) < 0.3),
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(rng.random(NUM_ROWS * 4), pa.float32()), 4),
            "list": pa.array([list(range(n % 3)) for n in range(NUM_ROWS)], pa.list_(pa.int16())),
        }
    )


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
@pytest.mark.parametrize("per_file", [1, 4])
@pytest.mark.parametrize("writer", [lance, lance_core])
def test_tiny_fragments_are_read_as_the_judge_reads_them(tmp_path, writer, per_file, version):
    uri = str(tmp_path / "t")
    writer.write_dataset(rows(), uri, max_rows_per_file=per_file, data_storage_version=version)
    table = lance.dataset(uri)
    table.delete("n % 7 = 3")
    table.add_columns({"twice": "n * 2"})
    more = rows().append_column("twice", pa.array(np.arange(NUM_ROWS)))
    writer.write_dataset(more, uri, mode="append", max_rows_per_file=1)
    theirs, ours = lance.dataset(uri), lance_core.dataset(uri)
    for asked in (
        {},
        {"filter": "gap > 0.5"},
        {"filter": "n < 40 AND word > 'wwww'"},
        {"columns": ["twice", "vector"]},
    ):
        assert ours.to_table(**asked).equals(theirs.to_table(**asked))
    places = list(range(0, theirs.count_rows(), 3))
    assert ours.take(places).equals(theirs.take(places))
