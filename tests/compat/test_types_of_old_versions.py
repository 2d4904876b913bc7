"""Every type in files of version 2.0 and 0.1: we read what pylance reads, and write what it can write and read."""

from functools import cache

import lance
import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import LanceError
from lance_core.testing.types import SAMPLES

N = 150
PLAIN = [one for one in SAMPLES if not isinstance(one.type, pa.BaseExtensionType)]
ROWS = [5, 1, 120]


@cache
def _table(sample_name, nulls):
    (sample,) = (one for one in PLAIN if one.name == sample_name)
    return sample.table(N, nulls=nulls)


def _is_same(got, expected):
    """Whether values are equal as they print, if not as they are, because NaN is not equal to itself."""
    return got.equals(expected) or str(got.to_pylist()) == str(expected.to_pylist())


def _taken(table):
    return pa.concat_tables([table.slice(row, 1) for row in ROWS])


def _by_pylance(table, place, version):
    """What pylance reads of what it writes; None if it cannot do the one or the other."""
    try:
        lance.write_dataset(table, place, data_storage_version=version)
        return lance.dataset(place).to_table()
    except (OSError, ValueError, NotImplementedError, pa.ArrowException, RuntimeError):
        return None
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        return None


@pytest.mark.parametrize("nulls", ["none", "some", "all"])
@pytest.mark.parametrize("version", ["2.0", "0.1"])
def test_what_pylance_reads_is_read_alike(tmp_path, capfd, version, nulls):
    read = 0
    for number, sample in enumerate(PLAIN):
        place = tmp_path / str(number)
        theirs = _by_pylance(_table(sample.name, nulls), place, version)
        if theirs is None:
            continue
        ours = lance_core.dataset(place)
        got = ours.to_table()
        got.validate(full=True)
        assert got.schema.equals(theirs.schema), sample.name
        assert _is_same(got, theirs), sample.name
        assert _is_same(ours.take(ROWS), _taken(theirs)), sample.name
        read += 1
    assert read > 35
    capfd.readouterr()  # pylance prints where it panicked


@pytest.mark.parametrize("nulls", ["none", "some", "all"])
def test_what_pylance_writes_is_written_alike(tmp_path, capfd, nulls):
    for number, sample in enumerate(PLAIN):
        table = _table(sample.name, nulls)
        theirs = _by_pylance(table, tmp_path / f"{number} theirs", "2.0")
        place = tmp_path / f"{number} ours"
        if theirs is None:
            with pytest.raises(LanceError, match="field"):
                lance_core.write_dataset(table, place, data_storage_version="2.0")
            assert not place.exists() or not list(place.rglob("*.lance"))
            continue
        lance_core.write_dataset(table, place, data_storage_version="2.0")
        judge = lance.dataset(place)
        got = judge.to_table()
        assert got.schema.equals(theirs.schema), sample.name
        assert _is_same(got, theirs), sample.name
        assert _is_same(judge.take(ROWS), _taken(theirs)), sample.name
    capfd.readouterr()  # pylance prints where it panicked
