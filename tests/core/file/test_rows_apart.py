"""Some of consecutive rows are asked for alone where those between them have more bytes than are worth reading."""

import numpy as np
import pyarrow as pa
import pytest

from lance_core.file.read import strategy

ROWS = 600
RNG = np.random.default_rng(11)


def _lists():
    offsets = np.cumsum([0, *(RNG.integers(1_000, 3_000, ROWS))]).astype(np.int32)
    items = pa.array(RNG.integers(0, 1 << 20, int(offsets[-1])))
    return pa.ListArray.from_arrays(pa.array(offsets, mask=np.arange(ROWS + 1) % 50 == 7), items)


COLUMNS = {
    "number": pa.array(np.arange(ROWS)),
    "lists": _lists(),
    "vectors": pa.FixedSizeListArray.from_arrays(pa.array(RNG.normal(size=ROWS * 1536).astype(np.float32)), 1536),
    "bytes": pa.array([None if row % 9 == 4 else RNG.bytes(20_000) for row in range(ROWS)]),
    "words": pa.array([f"word {row % 17}" for row in range(ROWS)]),
}


class ReadingBytes:
    """A file that counts the bytes it is asked for."""

    def __init__(self, inner, *, is_mapped):
        self.inner, self.is_mapped, self.num_bytes = inner, is_mapped, 0

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def run(self, plan, **options):
        return self.inner.run(self._counted(plan), **options)

    def _counted(self, plan):
        wanted = next(plan)
        try:
            while True:
                self.num_bytes += sum(self._size(one) for one in wanted)
                wanted = plan.send((yield wanted))
        except StopIteration as stop:
            return stop.value

    @staticmethod
    def _size(wanted):
        return wanted[1] - wanted[0] if isinstance(wanted, tuple) else int((wanted.ends - wanted.starts).sum())


def read(data_file, names, rows, selected, *, is_mapped=True):
    """The selected rows, and the bytes that were asked for."""
    table = pa.table({name: COLUMNS[name] for name in names})
    data_file.write(table)
    reader = data_file.open()
    reader._file = file = ReadingBytes(reader._file, is_mapped=is_mapped)
    columns = {leaf.id: index for index, leaf in enumerate(reader.schema.leaves())}
    batch = reader.cursor(reader.schema, columns, end=ROWS)(rows, np.array(selected))
    batch.validate(full=True)
    assert pa.Table.from_batches([batch]).equals(table.slice(rows.start).take(pa.array(selected)))
    return file.num_bytes


@pytest.mark.parametrize("name", ["lists", "vectors", "bytes"])
def test_rows_between_those_that_are_selected_are_not_read(data_file, name):
    tenth = read(data_file, [name], range(ROWS), range(3, ROWS, 10))
    every = read(data_file, [name], range(ROWS), range(ROWS))
    assert tenth < every / 4


@pytest.mark.parametrize("name", COLUMNS)
def test_rows_before_the_first_and_behind_the_last_are_not_read(data_file, name, monkeypatch):
    monkeypatch.setattr(strategy, "are_apart", lambda *_: False)
    few = read(data_file, [name], range(100, ROWS), [50, 51, 53])
    every = read(data_file, [name], range(100, ROWS), [0, 1, 499])
    assert few <= every
    assert few < every / 10 or name in ("number", "words")  # whose rows are all in one chunk


def test_small_columns_beside_them_are_read_at_one_go(data_file):
    names = list(COLUMNS)
    every = read(data_file, names, range(ROWS), range(ROWS))
    assert read(data_file, names, range(20, ROWS), range(1, 500, 7)) < every / 3
    assert read(data_file, names[::-1], range(20, ROWS), [5]) < 200_000


def test_a_store_is_asked_for_what_lies_between_if_that_is_less_than_a_request(data_file):
    mapped = read(data_file, ["vectors"], range(ROWS), range(0, ROWS, 3))
    stored = read(data_file, ["vectors"], range(ROWS), range(0, ROWS, 3), is_mapped=False)
    assert mapped < stored / 2
    assert read(data_file, ["bytes"], range(ROWS), range(0, ROWS, 10), is_mapped=False) < ROWS * 20_000 / 4
