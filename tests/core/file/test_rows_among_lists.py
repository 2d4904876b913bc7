"""Rows with lists are found without decoding what stands around them."""

import numpy as np
import pyarrow as pa

from lance_core.encoding import registry


def test_levels_are_not_unpacked_for_rows_among_lists(data_file, monkeypatch):
    """Rows are found by one bit for each level; of the levels themselves only those of the rows are decoded."""
    structs = [[{"a": one, "b": str(one % 9)} for one in range(row % 4)] for row in range(20_000)]
    lists = pa.array([None if row % 11 == 0 else one for row, one in enumerate(structs)])
    data_file.write(pa.table({"lists": lists}))
    rows = np.arange(0, 20_000, 13)
    monkeypatch.setattr(registry, "decode_level_chunks", None)
    reader = data_file.open()
    columns = {leaf.id: index for index, leaf in enumerate(reader.schema.leaves())}
    assert reader.take(reader.schema, columns, rows)["lists"].equals(lists.take(pa.array(rows)))
