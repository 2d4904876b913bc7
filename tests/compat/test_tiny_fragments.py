"""Fragments of a row or a few, of which one file is opened for all that are alike."""

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_core
from lance_core.encoding.layouts import mini_block

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


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_pages_with_symbol_tables_of_their_own_are_decoded_as_one(tmp_path, monkeypatch, version):
    """pylance chooses the symbols of each file by its strings."""
    uri, rng = str(tmp_path / "t"), np.random.default_rng(5)
    for number in range(6):
        words = [f"{number}-word-{word} " for word in range(40)]
        lines = [
            "".join(words[word] for word in row) + f"\xe9{row[0]}" for row in rng.integers(0, 40, (700, 6)).tolist()
        ]
        table = pa.table({"line": pa.array(lines, mask=rng.random(700) < 0.2), "n": np.arange(700) + 700 * number})
        lance.write_dataset(table, uri, mode="append", data_storage_version=version)
    num_tables, decode = [], mini_block.fsst.decode_pages

    def counted(tables, bounds, values):
        num_tables.append(len(set(tables)))
        return decode(tables, bounds, values)

    monkeypatch.setattr(mini_block.fsst, "decode_pages", counted)
    theirs, ours = lance.dataset(uri), lance_core.dataset(uri)
    assert ours.to_table().equals(theirs.to_table())
    assert num_tables == [6]
    for condition in ("n % 3 = 1", "n % 700 < 3", "line LIKE '4-word-7%'", "n > 2090 AND n < 2110"):
        assert ours.to_table(filter=condition).equals(theirs.to_table(filter=condition))
    places = rng.permutation(4200)[:900].tolist()
    for taken in (places, sorted(places), list(range(690, 1410)), [699, 700, 4199]):
        assert ours.take(taken).equals(theirs.take(taken))
