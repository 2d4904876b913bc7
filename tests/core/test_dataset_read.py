import pickle
from dataclasses import replace
from datetime import datetime
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lance_core
from lance_core.errors import (
    CorruptDataError,
    DatasetNotFoundError,
    InvalidInputError,
    RefNotFoundError,
    UnsupportedError,
    VersionNotFoundError,
)
from lance_core.format.table.manifest import encode_manifest_pieces

N = 5000
ROWS = pa.table(
    {
        "id": np.arange(N),
        "half": pa.array(np.arange(N) / 2, mask=np.arange(N) % 10 == 3),
        "text": [f"row {i}" for i in range(N)],
        "point": pa.array([None if i % 7 == 5 else {"x": i, "y": {"z": str(i)}} for i in range(N)]),
        "list": pa.array([None if i % 11 == 0 else list(range(i % 4)) for i in range(N)]),
    }
)
DELETED = "id % 3 = 1 or id between 2000 and 2999"
LIVE = ROWS.filter(pa.array([i % 3 != 1 and not 2000 <= i <= 2999 for i in range(N)]))


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """Five fragments, the third deleted as a whole, the others in part."""
    made = lance_core.write_dataset(ROWS, tmp_path_factory.mktemp("read") / "t", max_rows_per_file=1000)
    made.delete(DELETED)
    return made


def test_only_live_rows_are_read(dataset):
    assert dataset.to_table().equals(LIVE)
    assert dataset.count_rows() == len(dataset) == LIVE.num_rows
    assert [one.fragment_id for one in dataset.get_fragments()] == [0, 1, 3, 4]
    assert pa.Table.from_batches(dataset.to_batches(batch_size=77)).equals(LIVE)


def test_batches_are_no_larger_than_asked(dataset):
    sizes = [batch.num_rows for batch in dataset.to_batches(columns=["id"], batch_size=100)]
    assert max(sizes) <= 100
    assert sum(sizes) == LIVE.num_rows


@pytest.mark.parametrize(
    "columns", [["text"], ["list", "id"], ["point.x"], ["point.y.z", "id", "point.x"], ["_rowaddr", "id"], ["point"]]
)
def test_projections(dataset, columns):
    expected = LIVE.append_column("_rowaddr", pc.bit_wise_or(pc.shift_left(pc.divide(LIVE["id"], 1000), 32), 0))
    expected = expected.append_column("point.x", pc.struct_field(LIVE["point"], "x"))
    expected = expected.append_column("point.y.z", pc.struct_field(LIVE["point"], ["y", "z"]))
    found = dataset.to_table(columns=columns)
    assert found.schema.names == columns
    for name in set(columns) - {"_rowaddr"}:
        assert found[name].to_pylist() == expected[name].to_pylist()


def test_row_ids_name_fragment_and_offset(dataset):
    found = dataset.to_table(columns=["id"], with_row_id=True, with_row_address=True)
    ids = found["id"].to_numpy()
    assert found.schema.names == ["id", "_rowid", "_rowaddr"]
    assert np.array_equal(found["_rowaddr"].to_numpy(), (ids // 1000 << 32) + ids % 1000)
    assert found["_rowid"].equals(found["_rowaddr"])
    assert dataset.to_table(columns=[], with_row_id=True)["_rowid"].equals(found["_rowid"])
    address = 3 << 32 | 2
    assert dataset.to_table(columns=["id"], filter=f"_rowaddr = {address}")["id"].to_pylist() == [3002]


FILTERS = {
    "id = 3002": lambda i: i == 3002,
    "id < 10": lambda i: i < 10,
    "id >= 0": lambda _: True,
    "id % 2 = 0": lambda i: i % 2 == 0,
    "id % 500 < 2": lambda i: i % 500 < 2,
    "text like 'row 4%'": lambda i: str(i).startswith("4"),
    "half is null": lambda i: i % 10 == 3,
    "point.x > 4000": lambda i: i % 7 != 5 and i > 4000,
    "point is null": lambda i: i % 7 == 5,
    "false": lambda _: False,
    "true": lambda _: True,
    "_rowid >= 0": lambda _: True,
}


@pytest.mark.parametrize("condition", list(FILTERS))
@pytest.mark.parametrize("columns", [None, ["text"], ["point.y.z"], ["id"], ["_rowid"]])
@pytest.mark.parametrize("batch_size", [None, 64])
def test_filters_agree_with_plain_python(dataset, condition, columns, batch_size):
    wanted = [i for i in LIVE["id"].to_pylist() if FILTERS[condition](i)]
    rows = ROWS.take(pa.array(wanted, pa.int64()))
    found = dataset.to_table(columns=columns, filter=condition, batch_size=batch_size)
    if columns is None:
        assert found.equals(rows)
    elif columns == ["_rowid"]:
        assert found["_rowid"].to_pylist() == [(i // 1000 << 32) + i % 1000 for i in wanted]
    elif columns == ["point.y.z"]:
        assert found["point.y.z"].to_pylist() == pc.struct_field(rows["point"], ["y", "z"]).to_pylist()
    else:
        assert found.equals(rows.select(columns))
    assert dataset.count_rows(condition) == len(wanted)


def test_pyarrow_expressions_filter(dataset):
    expected = LIVE.filter(pc.field("id") > 4900)
    assert dataset.to_table(filter=pc.field("id") > 4900).equals(expected)
    assert dataset.count_rows(pc.field("id") > 4900) == expected.num_rows


@pytest.mark.parametrize("offset", [0, 1, 666, 667, 1400, LIVE.num_rows - 1, LIVE.num_rows, 10**9])
@pytest.mark.parametrize("limit", [None, 0, 1, 10, 700, 10**9])
@pytest.mark.parametrize("condition", [None, "id >= 100"])
def test_limit_and_offset(dataset, offset, limit, condition):
    rows = LIVE if condition is None else LIVE.filter(pc.field("id") >= 100)
    found = dataset.to_table(columns=["id", "text"], filter=condition, limit=limit, offset=offset)
    assert found.equals(rows.select(["id", "text"]).slice(offset, limit))


def test_head(dataset):
    assert dataset.head(5).equals(LIVE.slice(0, 5))
    assert dataset.head(3, columns=["id"], filter="id > 10")["id"].to_pylist() == [11, 12, 14]


@pytest.mark.parametrize(
    "places", [[], [0], [1, 0], [5, 5, 2, 5], [LIVE.num_rows - 1, 0], list(range(0, LIVE.num_rows, 37))]
)
def test_take_by_place(dataset, places):
    expected = LIVE.take(pa.array(places, pa.int64()))
    assert dataset.take(places).equals(expected)
    assert dataset.take(pa.array(places, pa.int64()), columns=["text"]).equals(expected.select(["text"]))


@pytest.mark.parametrize("places", [[-1], [LIVE.num_rows], [0, 10**12]])
def test_take_refuses_rows_that_are_not_there(dataset, places):
    with pytest.raises(InvalidInputError, match="rows are 0 to"):
        dataset.take(places)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"columns": ["txet"]}, InvalidInputError, "did you mean text"),
        ({"columns": ["point.q"]}, InvalidInputError, "'q'"),
        ({"columns": ["id", "id"]}, InvalidInputError, "twice"),
        ({"columns": "id"}, InvalidInputError, "list of names"),
        ({"columns": {"a": "nope + 1"}}, InvalidInputError, "no column"),
        ({"filter": "nope = 1"}, InvalidInputError, "nope"),
        ({"filter": "id = 'x'"}, InvalidInputError, "int64"),
        ({"limit": -1}, InvalidInputError, "limit"),
        ({"offset": -1}, InvalidInputError, "offset"),
        ({"batch_size": 0}, InvalidInputError, "batch_size"),
        ({"nearest": {"column": "v"}}, InvalidInputError, "'q'"),
        ({"order_by": ["list"]}, UnsupportedError, "order by"),
        ({"nonsense": 1}, TypeError, "nonsense"),
    ],
)
def test_wrong_questions_are_refused_at_once(dataset, arguments, error, words):
    with pytest.raises(error, match=words):
        dataset.to_batches(**arguments)
    for method in (dataset.count_rows, dataset.delete):
        if "filter" in arguments:
            with pytest.raises(error, match=words) as caught:
                method(arguments["filter"])
            assert caught.value.path == dataset.uri


def test_fragments_read_alone(dataset):
    second = dataset.get_fragment(1)
    rows = LIVE.filter((pc.field("id") >= 1000) & (pc.field("id") < 2000))
    assert second.to_table().equals(rows)
    assert second.count_rows() == rows.num_rows
    assert second.count_rows("id < 1010") == 6
    assert second.head(2).equals(rows.slice(0, 2))
    assert dataset.to_table(fragments=[dataset.get_fragment(4), second]).num_rows == 2 * rows.num_rows
    assert (second.physical_rows, second.num_deletions) == (1000, 1000 - rows.num_rows)
    assert second.deletion_file().startswith("_deletions/1-1-")
    assert second.metadata.num_rows == rows.num_rows
    assert dataset.get_fragment(2) is None
    assert pickle.loads(pickle.dumps(second)).to_table().equals(rows)  # noqa: S301


def test_a_fragment_is_read_in_pieces(dataset):
    first = dataset.get_fragment(0)
    cuts = [0, 1, 333, 999, 1000]
    for condition in (None, "id % 2 = 0"):
        pieces = [
            batch
            for start, end in pairwise(cuts)
            for batch in first.to_batches(rows=(start, end), filter=condition, with_row_id=True)
        ]
        assert pa.Table.from_batches(pieces).equals(first.to_table(filter=condition, with_row_id=True))
    with pytest.raises(InvalidInputError, match="must be a range"):
        first.to_batches(rows=(0, 1001))


def test_statistics(dataset):
    numbers = dataset.table_statistics()
    assert numbers.pop("num_bytes") > 0
    assert numbers == {
        "num_rows": LIVE.num_rows,
        "num_deleted_rows": 4000 - LIVE.num_rows,
        "num_fragments": 4,
        "num_data_files": 4,
        "num_deletion_files": 4,
        "num_small_fragments": 4,
    }
    assert dataset.stats.dataset_stats() == {
        "num_deleted_rows": 4000 - LIVE.num_rows,
        "num_fragments": 4,
        "num_small_files": 4,
    }


def test_versions_and_tags(tmp_path):
    dataset = lance_core.write_dataset(ROWS.slice(0, 10), tmp_path / "t")
    began = datetime.now()  # noqa: DTZ005 versions have local times, as in pylance
    dataset.tags.create("first")
    dataset.delete("id < 5")
    assert (dataset.version, dataset.latest_version) == (2, 2)
    dataset.tags.create("second", 2)
    assert [one["version"] for one in dataset.versions()] == [1, 2]
    assert dataset.versions()[0]["timestamp"] <= began <= dataset.versions()[1]["timestamp"]
    assert dataset.checkout_version("first").count_rows() == 10
    assert lance_core.dataset(dataset.uri, "second").count_rows() == 5
    assert dataset.tags.get_version("first") == 1
    dataset.tags.update("first", "second")
    assert dataset.tags.list()["first"]["version"] == 2
    dataset.tags.delete("first")
    assert list(dataset.tags.list()) == ["second"]
    old = dataset.checkout_version(1)
    assert dataset.version == 2
    old.restore()
    assert (old.version, old.count_rows()) == (3, 10)
    dataset.checkout_latest()
    assert dataset.version == 3
    for version, error in ((9, VersionNotFoundError), ("nope", RefNotFoundError)):
        with pytest.raises(error):
            dataset.checkout_version(version)
    assert [type(one.operation).__name__ for one in dataset.get_transactions()] == ["Restore", "Delete", "Overwrite"]
    assert len(dataset.get_transactions(2)) == 2


def test_a_dataset_travels_by_address_and_version(tmp_path):
    dataset = lance_core.write_dataset(ROWS.slice(0, 10), tmp_path / "t")
    copy = pickle.loads(pickle.dumps(dataset))  # noqa: S301
    dataset.delete("id = 1")
    assert (copy.version, copy.count_rows()) == (1, 10)
    assert repr(copy) == f"LanceDataset({copy.uri!r}, version=1)"


def test_errors_name_the_place_and_write_nothing(tmp_path):
    with pytest.raises(DatasetNotFoundError, match=r"t\.lance"):
        lance_core.dataset(tmp_path / "t.lance")
    with pytest.raises(InvalidInputError, match="table_id"):
        lance_core.dataset(tmp_path / "t.lance", table_id=["one"])
    assert list(tmp_path.iterdir()) == []


def damaged(path, change):
    path.write_bytes(change(path.read_bytes()))


def test_damaged_files_are_named(tmp_path):
    dataset = lance_core.write_dataset(ROWS.slice(0, 100), tmp_path / "t")
    data = tmp_path / "t" / "data" / dataset.get_fragments()[0].data_files()[0].path
    damaged(data, lambda content: content[:-4] + b"XXXX")
    with pytest.raises(CorruptDataError, match=data.name):
        dataset.to_table()
    manifest = next((tmp_path / "t" / "_versions").glob("*.manifest"))
    damaged(manifest, lambda content: content[: len(content) // 2])
    with pytest.raises(CorruptDataError, match=manifest.name):
        lance_core.dataset(tmp_path / "t")


def test_a_data_file_of_the_wrong_length_is_named(tmp_path):
    dataset = lance_core.write_dataset(ROWS.slice(0, 100), tmp_path / "t")
    other = lance_core.write_dataset(ROWS.slice(0, 99), tmp_path / "u")
    names = [next((tmp_path / name / "data").iterdir()) for name in "tu"]
    names[0].write_bytes(names[1].read_bytes())
    assert other.count_rows() == 99
    with pytest.raises(CorruptDataError, match="the manifest says 100"):
        dataset.to_table()


def test_features_that_are_not_known_are_refused_by_name(tmp_path):
    dataset = lance_core.write_dataset(ROWS.slice(0, 10), tmp_path / "t")
    manifest = next((tmp_path / "t" / "_versions").glob("*.manifest"))
    known = dataset.snapshot.manifest
    manifest.write_bytes(b"".join(encode_manifest_pieces(replace(known, reader_feature_flags=1 << 40))))
    with pytest.raises(UnsupportedError, match=r"1099511627776|bit 40") as caught:
        lance_core.dataset(tmp_path / "t")
    assert str(manifest) in str(caught.value)
    manifest.write_bytes(b"".join(encode_manifest_pieces(replace(known, writer_feature_flags=1 << 40))))
    readable = lance_core.dataset(tmp_path / "t")
    assert readable.count_rows() == 10
    before = sorted((tmp_path / "t" / "data").iterdir())
    with pytest.raises(UnsupportedError):
        lance_core.write_dataset(ROWS.slice(0, 10), tmp_path / "t", mode="append")
    with pytest.raises(UnsupportedError):
        readable.delete("id = 1")
    assert sorted((tmp_path / "t" / "data").iterdir()) == before
    assert not list((tmp_path / "t").glob("_deletions/*"))
