"""Pages of vectors end where batches end, so that batches are views of the file."""

import numpy as np
import pyarrow as pa
import pytest

from lance_core.scan.plan import default_batch_size

pytestmark = pytest.mark.slow


def _vectors(rows, dimension, kind=np.float32):
    values = np.arange(rows * dimension, dtype=kind)
    return pa.table({"v": pa.FixedSizeListArray.from_arrays(pa.array(values), dimension)})


def _scan(data_file, batch_size):
    reader = data_file.open()
    batches = reader.scan(
        reader.schema,
        {leaf.id: index for index, leaf in enumerate(reader.schema.leaves())},
        start=0,
        end=reader.num_rows,
        batch_size=batch_size,
    )
    return reader.schema, list(batches)


@pytest.mark.parametrize("chunk_rows", [1000, 5000, 40_000])
@pytest.mark.parametrize(("rows", "dimension"), [(20_000, 1536), (36_000, 768)])
def test_batches_are_views(data_file, rows, dimension, chunk_rows):
    table = _vectors(rows, dimension)
    data_file.write(table, max_chunksize=chunk_rows)
    allocated = pa.total_allocated_bytes()
    _, batches = _scan(data_file, default_batch_size(table.schema))
    assert pa.total_allocated_bytes() - allocated < table.nbytes / 100
    assert pa.Table.from_batches(batches).column("v").combine_chunks().equals(table.column("v").combine_chunks())


@pytest.mark.parametrize("dimension", [1, 63, 64, 100, 768, 4096])
def test_batches_fit_pages(dimension):
    """Default batches divide pages of any width, whatever other columns there are."""
    size = default_batch_size(pa.schema([("v", pa.list_(pa.float32(), dimension)), ("x", pa.int64())]))
    assert size & (size - 1) == 0
    assert size * dimension * 4 <= 1 << 25
