"""Files in a temporary directory, written and read by our own code."""

import numpy as np
import pyarrow as pa
import pytest

from lance_core.file.read.reader import DataFileReader
from lance_core.file.write.writer import DataFileWriter
from lance_core.format.schema import Schema
from lance_core.store.local import LocalStore


class CountingReader:
    """Passes reads on and remembers them."""

    def __init__(self, inner):
        self.inner = inner
        self.calls = []

    @property
    def size(self):
        return self.inner.size

    def read_ranges(self, ranges):
        self.calls.append(list(ranges))
        return self.inner.read_ranges(ranges)

    def close(self):
        self.inner.close()


class ForgetfulSink:
    """Takes bytes and counts them."""

    def __init__(self):
        self.num_bytes = 0

    def write(self, data):
        self.num_bytes += len(data)


class DataFile:
    """One file and what is done with it."""

    def __init__(self, store):
        self.store = store

    def write(self, table, *, max_chunksize=None, version="2.2"):
        writer = DataFileWriter(self.store.writer("x.lance"), Schema.from_arrow(table.schema), version=version)
        for batch in table.to_batches(max_chunksize=max_chunksize):
            writer.write(batch)
        return writer.finish()

    @staticmethod
    def writer(schema, *, version="2.2"):
        return DataFileWriter(ForgetfulSink(), Schema.from_arrow(schema), version=version)

    def bytes(self):
        return self.store.get("x.lance")

    def open(self, *, counting=False):
        source = self.store.reader("x.lance")
        return DataFileReader(CountingReader(source) if counting else source, path="x.lance")

    def read(self, start=0, end=None, *, batch_size=1 << 20, names=None):
        reader = self.open()
        projection = reader.schema if names is None else reader.schema.select(names)
        columns = {leaf.id: index for index, leaf in enumerate(reader.schema.leaves())}
        end = reader.num_rows if end is None else end
        batches = list(reader.scan(projection, columns, start=start, end=end, batch_size=batch_size))
        table = pa.Table.from_batches(batches, schema=projection.to_arrow())
        table.validate(full=True)
        return table

    def take(self, rows, names=None):
        reader = self.open()
        projection = reader.schema if names is None else reader.schema.select(names)
        columns = {leaf.id: index for index, leaf in enumerate(reader.schema.leaves())}
        batch = reader.take(projection, columns, np.asarray(rows, np.int64))
        batch.validate(full=True)
        return pa.Table.from_batches([batch])


@pytest.fixture
def data_file(tmp_path):
    return DataFile(LocalStore(str(tmp_path)))
