import uuid

import numpy as np
import pyarrow as pa
import pytest

import lance_core
from lance_core.scan.fragment_reader import FragmentReader
from lance_core.scan.pick import pick_rows

N = 3000
ROWS = pa.table(
    {
        "id": pa.array(range(N), pa.int64()),
        "s": pa.array([{"x": i, "l": [str(i)] * (i % 3)} for i in range(N)]),
        "f": pa.array(
            np.arange(4 * N, dtype=np.float32).reshape(N, 2, 2).tolist(), pa.list_(pa.list_(pa.float32(), 2), 2)
        ),
    }
)


@pytest.fixture(scope="module")
def reader():
    dataset = lance_core.write_dataset(ROWS, f"memory://pick-{uuid.uuid4()}")
    return FragmentReader(dataset.files, dataset.snapshot.manifest.fragments[0]), dataset.snapshot.manifest.schema


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [7, 100, N])
@pytest.mark.parametrize(
    "offsets",
    [[], [0], [N - 1], range(N), range(5, 900), range(0, N, 2), range(3, N, 500), [1, 2, 3, 2999]],
    ids=str,
)
def test_rows_few_or_many(reader, offsets, batch_size):
    fragment, schema = reader
    batches = list(pick_rows(fragment, schema, np.array(offsets, np.int64), batch_size=batch_size))
    assert all(0 < batch.num_rows <= batch_size for batch in batches)
    found = pa.Table.from_batches(batches, schema=ROWS.schema)
    assert found.to_pylist() == [ROWS.slice(i, 1).to_pylist()[0] for i in offsets]
