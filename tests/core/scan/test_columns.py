"""What of a projection is in a file: worked out once for files that are alike, and anew for all others."""

import pyarrow as pa
import pytest

from lance_core.errors import CorruptDataError
from lance_core.format.schema import Schema
from lance_core.format.table.fragment import DataFile
from lance_core.scan import columns
from lance_core.scan.columns import split_projection

SCHEMA = Schema.from_arrow(pa.schema({"a": pa.int64(), "b": pa.struct({"c": pa.int8(), "d": pa.string()})}))


def _file(fields, indices, path="x.lance"):
    given = {"path": path, "fields": tuple(fields), "column_indices": tuple(indices)}
    return DataFile(**given, file_major_version=2, file_minor_version=2)


def _parts(projection, *files):
    return [(part.file.path, part.schema.names, dict(part.columns)) for part in split_projection(projection, files)]


def test_files_and_projections_that_differ_are_told_apart():
    asked = [
        ((SCHEMA, _file([0, 2, 3], [0, 1, 2])), [("x.lance", ("a", "b"), {0: 0, 2: 1, 3: 2})]),
        ((SCHEMA, _file([0, 2, 3], [2, 1, 0])), [("x.lance", ("a", "b"), {0: 2, 2: 1, 3: 0})]),
        ((SCHEMA, _file([0, 2, 3], [0, 1, 2], "y.lance")), [("y.lance", ("a", "b"), {0: 0, 2: 1, 3: 2})]),
        ((SCHEMA, _file([0, -2], [0, 1]), _file([3], [0])), [("x.lance", ("a",), {0: 0}), ("x.lance", ("b",), {3: 0})]),
        ((SCHEMA.select(["b.d"]), _file([0, 2, 3], [0, 1, 2])), [("x.lance", ("b",), {3: 2})]),
        ((SCHEMA.select(["a"]), _file([2, 3], [0, 1])), []),
    ]
    for _ in range(2):
        for given, found in asked:
            assert _parts(*given) == found


def test_files_that_are_alike_share_it(monkeypatch):
    (first,) = split_projection(SCHEMA, [_file([0, 2, 3], [0, 1, 2])])
    monkeypatch.setattr(columns, "_prune", None)
    (second,) = split_projection(SCHEMA, [_file([0, 2, 3], [0, 1, 2], "y.lance")])
    assert second.schema is first.schema
    assert second.file.path == "y.lance"


def test_a_file_that_contradicts_itself_is_named_each_time():
    for path in ("x.lance", "y.lance"):
        with pytest.raises(CorruptDataError) as caught:
            split_projection(SCHEMA, [_file([0, 2, 3], [0, 1], path)])
        assert caught.value.path == path
