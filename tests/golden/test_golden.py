"""Files that were written once, by pylance, and must be read the same for ever."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lance_core.file import LanceFileReader

FILES = sorted(Path(__file__).parent.glob("*/*/*.lance"))


def test_every_version_is_here():
    assert {path.parent.name for path in FILES} == {"0.1", "2.0", "2.1", "2.2"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_golden_file(path):
    expected = pa.ipc.open_file(path.with_suffix(".arrow")).read_all()
    reader = LanceFileReader(path)
    assert reader.metadata().schema == expected.schema
    num_rows = len(expected)
    for start, end in ((0, num_rows), (3, num_rows - 5), (num_rows // 2, num_rows // 2 + 1)):
        got = reader.read_range(start, end - start, batch_size=17).to_table()
        got.validate(full=True)
        _check_same(got, expected.slice(start, end - start))
    rows = np.random.default_rng(7).permutation(num_rows)[:9]
    _check_same(reader.take_rows(rows).to_table(), expected.take(rows))
    for name in expected.schema.names:
        alone = LanceFileReader(path, columns=[name]).take_rows([num_rows - 1, 0]).to_table()
        _check_same(alone, expected.select([name]).take([num_rows - 1, 0]))


def _check_same(got, expected):
    assert got.schema == expected.schema
    different = [name for name in expected.schema.names if not got[name].equals(expected[name])]
    assert not different
