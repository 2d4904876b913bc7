import itertools
import uuid

import numpy as np
import pyarrow as pa
import pytest

import lance_core
from lance_core.change.stage import FileLimits, stage_fragments
from lance_core.errors import CorruptDataError
from lance_core.format.schema import Schema
from lance_core.format.table import fragment_list
from lance_core.format.table.fragment import Fragment
from lance_core.scan.deletions import contains, live_mask, offsets_of_live
from lance_core.scan.fragment_reader import FragmentReader
from lance_core.scan.open_files import OpenFiles
from lance_core.store.open import open_store

N = 3000
TABLE = pa.table(
    {
        "a": np.arange(N),
        "text": [f"row {i}" for i in range(N)],
        "s": pa.array([None if i % 5 == 0 else {"x": i, "y": {"z": str(i), "w": i / 2}} for i in range(N)]),
        "wide": pa.FixedSizeListArray.from_arrays(np.repeat(np.arange(N), 8).astype(np.float32), 8),
        "list": pa.array([[{"p": i, "q": -i}] for i in range(N)]),
    }
)
SCHEMA = Schema.from_arrow(TABLE.schema)


@pytest.fixture
def files(tmp_path):
    return OpenFiles(open_store(tmp_path / "t"))


def written(files, names, num_rows=N, table=TABLE):
    """A data file with some of the fields."""
    fields = SCHEMA.select(names)
    batches = [nested(table.slice(0, num_rows), fields)]
    limits = FileLimits(max_rows_per_file=1 << 40, max_bytes_per_file=1 << 40)
    made = stage_fragments(
        files.store, fields, batches, limits=limits, data_storage_version="2.2", new_uuid=lambda: uuid.uuid4().bytes
    )
    return made[0].files[0]


def nested(table, fields):
    """The values of a table cut down to some fields of its structs."""
    rows = [{one.name: cut(row[one.name], one) for one in fields.fields} for row in table.to_pylist()]
    return pa.Table.from_pylist(rows, fields.to_arrow()).combine_chunks().to_batches()[0]


def cut(value, field):
    if value is None or not field.children:
        return value
    if isinstance(value, list):
        return [cut(one, field.children[0]) for one in value]
    return {child.name: cut(value[child.name], child) for child in field.children}


def scanned(reader, projection, **options):
    for rows in reader.scan(projection, **{"start": 0, "end": N, "batch_size": 700, **options}):
        assert len({len(column) for column in rows.columns} | {rows.num_rows}) == 1
        yield pa.RecordBatch.from_arrays(list(rows.columns), schema=projection.to_arrow())


@pytest.mark.slow
@pytest.mark.parametrize(
    "parts",
    [
        [["a", "text", "s", "wide", "list"]],
        [["a"], ["text", "wide"], ["list", "s"]],
        [["a", "s.x", "list"], ["text", "s.y.w"], ["s.y.z", "wide"]],
    ],
)
def test_columns_are_joined_from_all_files(files, parts):
    reader = FragmentReader(
        files, Fragment(id=0, files=tuple(written(files, names) for names in parts), physical_rows=N)
    )
    assert pa.Table.from_batches(scanned(reader, SCHEMA)).equals(TABLE)
    middle = pa.Table.from_batches(scanned(reader, SCHEMA.select(["wide", "s.y.z"]), start=123, end=2001))
    assert middle["wide"].to_pylist() == TABLE["wide"].slice(123, 1878).to_pylist()
    offsets = np.array([0, 5, 1999, N - 1])
    taken = pa.RecordBatch.from_arrays(reader.take(SCHEMA, offsets), schema=TABLE.schema)
    assert taken.to_pylist() == TABLE.take(pa.array(offsets)).to_pylist()


def test_what_is_in_no_file_reads_as_null(files):
    reader = FragmentReader(files, Fragment(id=0, files=(written(files, ["a", "s.x"]),), physical_rows=N))
    read = pa.Table.from_batches(scanned(reader, SCHEMA))
    assert read["text"].null_count == read["wide"].null_count == N
    expected = [None if row is None else {"x": row["x"], "y": None} for row in TABLE["s"].to_pylist()]
    assert read["s"].to_pylist() == expected
    nothing = list(reader.scan(SCHEMA.select(["text"]), start=10, end=N, batch_size=1000))
    assert [(rows.start, rows.num_rows) for rows in nothing] == [(10, 1000), (1010, 1000), (2010, 990)]


def test_fields_inside_of_lists_are_joined_from_all_files(files):
    parts = (written(files, ["list.item.p"]), written(files, ["a", "list.item.q"]))
    reader = FragmentReader(files, Fragment(id=0, files=parts, physical_rows=N))
    projection = SCHEMA.select(["list", "a"])
    assert pa.Table.from_batches(scanned(reader, projection)).equals(TABLE.select(["list", "a"]))
    alone = FragmentReader(files, Fragment(id=0, files=parts[:1], physical_rows=N))
    read = pa.Table.from_batches(scanned(alone, SCHEMA.select(["list"])))
    assert read["list"].to_pylist() == [[{"p": i, "q": None}] for i in range(N)]


def test_lists_of_other_lengths_in_another_file_are_damage(files):
    other = TABLE.set_column(4, "list", pa.array([[], *TABLE["list"].to_pylist()[1:]], TABLE.schema.field("list").type))
    parts = (written(files, ["list.item.p"]), written(files, ["list.item.q"], table=other))
    reader = FragmentReader(files, Fragment(id=0, files=parts, physical_rows=N))
    with pytest.raises(CorruptDataError, match="lengths of the list 'list'"):
        list(scanned(reader, SCHEMA.select(["list"])))


def test_a_required_column_in_no_file_is_damage(files):
    strict = Schema.from_arrow(pa.schema([pa.field("q", pa.int64(), nullable=False)]), first_id=100)
    reader = FragmentReader(files, Fragment(id=0, files=(written(files, ["a"]),), physical_rows=N))
    with pytest.raises(CorruptDataError, match="'q'"):
        list(scanned(reader, strict))


def test_a_file_with_other_rows_than_the_manifest_says_is_damage(files):
    reader = FragmentReader(files, Fragment(id=0, files=(written(files, ["a"], N - 1),), physical_rows=N))
    with pytest.raises(CorruptDataError, match=f"{N - 1} rows, the manifest says {N}"):
        list(scanned(reader, SCHEMA.select(["a"])))


def test_open_files_are_kept_and_let_go(tmp_path):
    files = OpenFiles(open_store(tmp_path / "t"), capacity=2)
    written_files = [written(files, ["a"]) for _ in range(3)]
    first = files.open(written_files[0], num_rows=N)
    assert files.open(written_files[0], num_rows=N) is first
    files.open(written_files[1], num_rows=N)
    assert files.open(written_files[0], num_rows=N) is first
    files.open(written_files[2], num_rows=N)
    files.open(written_files[1], num_rows=N)
    assert files.open(written_files[0], num_rows=N) is not first


def test_arithmetic_of_deleted_rows_against_lists():
    for deleted in itertools.chain.from_iterable(itertools.combinations(range(7), k) for k in range(7)):
        array = np.array(deleted, np.int64)
        live = [i for i in range(7) if i not in deleted]
        assert offsets_of_live(array, np.arange(len(live))).tolist() == live
        assert contains(array, np.arange(-1, 9)).tolist() == [i in deleted for i in range(-1, 9)]
        for start, end in itertools.combinations(range(8), 2):
            mask = live_mask(array, start, end)
            expected = [i not in deleted for i in range(start, end)]
            assert mask is None if all(expected) else mask.tolist() == expected


@pytest.mark.parametrize(
    ("limit", "offset", "num_decoded"), [(4, 0, 1), (10, 0, 1), (11, 0, 2), (5, 35, 1), (6, 35, 2)]
)
def test_fragments_outside_of_a_window_are_not_even_decoded(tmp_path, monkeypatch, limit, offset, num_decoded):
    lance_core.write_dataset(pa.table({"id": range(60)}), tmp_path / "t", max_rows_per_file=10)
    table = lance_core.dataset(tmp_path / "t")
    table.to_table()
    decoded, decode = [], fragment_list.decode_fragment
    monkeypatch.setattr(fragment_list, "decode_fragment", lambda data: decoded.append(1) or decode(data))
    found = table.to_table(limit=limit, offset=offset)
    assert found["id"].to_pylist() == list(range(offset, offset + limit))
    assert len(decoded) == num_decoded
