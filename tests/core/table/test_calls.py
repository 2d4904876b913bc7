"""What opening, appending and reading cost in calls and objects: nothing for each fragment, little for each column."""

import gc
import sys
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import CorruptDataError
from lance_core.format.table import manifest as manifest_format
from lance_core.format.table.fragment_list import FragmentList
from lance_core.format.table.manifest import encode_manifest_pieces
from lance_core.format.table.paths import LATEST_VERSION_HINT, ManifestNaming, manifest_path
from lance_core.store.local import LocalStore

pytestmark = pytest.mark.usefixtures("versions_are_remembered")

ROW = pa.table({"x": pa.array([1], pa.int64())})
FEW, MANY = 100, 1_000
GROWTH = 105
"""More calls or objects for 900 more fragments: each time that a record gets longer by a byte, a stretch begins."""


def blocks_of(work):
    """Blocks of memory that Python's objects hold as long as the answer lives."""
    gc.collect()
    gc.disable()
    try:
        before = sys.getallocatedblocks()
        answer = work()
        after = sys.getallocatedblocks()
    finally:
        gc.enable()
    del answer
    return after - before


def with_fragments(path, number):
    """A table with so many fragments, which share a data file."""
    first = lance_core.write_dataset(ROW, path).snapshot.manifest
    fragments = FragmentList.of(replace(first.fragments[0], id=one) for one in range(number))
    manifest = replace(first, version=2, fragments=fragments, max_fragment_id=number - 1)
    store = LocalStore(str(path))
    store.put(manifest_path(2, ManifestNaming.V2), b"".join(encode_manifest_pieces(manifest)))
    store.put(LATEST_VERSION_HINT, b'{"version":2}')
    return str(path)


WORKS = {
    "open": lance_core.dataset,
    "append": lambda path: lance_core.write_dataset(ROW, path, mode="append"),
    "count": lambda path: lance_core.dataset(path).count_rows(),
    "take": lambda path: lance_core.dataset(path).take([3]),
    "last rows": lambda path: lance_core.dataset(path).to_table(offset=FEW - 2, limit=2),
    "tag": lambda path: lance_core.dataset(path).tags.create("now", 1),
}


@pytest.mark.parametrize("work", WORKS)
def test_fragments_cost_no_calls(tmp_path, calls_of, work):
    counts = []
    for number in (FEW, MANY):
        path = with_fragments(tmp_path / f"{number}", number)
        WORKS[work](with_fragments(tmp_path / f"{number} warm", number))
        counts.append(calls_of(lambda path=path: WORKS[work](path)))
    few, many = counts
    assert many <= few + GROWTH, (few, many)


def test_a_handful_of_fragments_is_counted_without_a_look_at_the_bytes_of_all(tmp_path, calls_of):
    paths = [with_fragments(tmp_path / name, 5) for name in ("warm", "counted")]
    lance_core.dataset(paths[0]).count_rows()
    opened = calls_of(lambda: lance_core.dataset(paths[1]))
    assert calls_of(lambda: lance_core.dataset(paths[1]).count_rows()) <= opened + 100


@pytest.mark.slow
@pytest.mark.parametrize("work", ["open", "append"])
def test_fragments_are_no_objects(tmp_path, work):
    blocks = []
    for number in (FEW, MANY):
        path = with_fragments(tmp_path / f"{number}", number)
        WORKS[work](with_fragments(tmp_path / f"{number} warm", number))
        blocks.append(blocks_of(lambda path=path: WORKS[work](path)))
    few, many = blocks
    assert many <= few + GROWTH, (few, many)


def columns(number):
    return pa.table({f"c{one}": np.arange(1000) * (one + 1) % 977 for one in range(number)})


# For each work the most calls that a table of one column may cost, and each further column.
LIMITS = {
    "open": (340, 2),
    "append": (1250, 63),
    "scan": (1700, 217),
    "take": (1400, 255),
    "filter": (2300, 265),
    "delete": (2300, 10),
    "update": (2950, 260),
    "new column": (2550, 26),
    "upsert": (3150, 100),
    "restore": (1000, 2),
}


def ask(work, path, table):
    match work:
        case "open":
            manifest_format._MADE.clear()  # as another process opens it
            return lance_core.dataset(path)
        case "append":
            return lance_core.write_dataset(table, path, mode="append")
        case "scan":
            return lance_core.dataset(path).to_table()
        case "take":
            return lance_core.dataset(path).take([1, 500, 998])
        case "filter":
            return lance_core.dataset(path).to_table(filter="c0 < 20")
        case "delete":
            return lance_core.dataset(path).delete("c0 = 20")
        case "update":
            return lance_core.dataset(path).update({"c0": "c0 + 1"}, where="c0 = 20")
        case "new column":
            return lance_core.dataset(path).add_columns({"new": "c0 + 1"})
        case "upsert":
            merge = lance_core.dataset(path).merge_insert("c0").when_matched_update_all()
            return merge.when_not_matched_insert_all().execute(table.slice(0, 5))
        case "restore":
            return lance_core.dataset(path).restore()


@pytest.mark.parametrize("work", LIMITS)
def test_calls_of_a_column(tmp_path, calls_of, work):
    counts = []
    for number in (1, 41):
        table = columns(number)
        for name in ("warm", "counted"):
            lance_core.write_dataset(table, tmp_path / f"{number} {name}")
        ask(work, str(tmp_path / f"{number} warm"), table)
        counts.append(
            calls_of(lambda table=table, number=number: ask(work, str(tmp_path / f"{number} counted"), table))
        )
    one, each = counts[0], (counts[1] - counts[0]) / 40
    assert one <= LIMITS[work][0], one
    assert each <= LIMITS[work][1], each


def test_a_deep_folder_costs_no_calls(tmp_path, calls_of):
    deep = tmp_path.joinpath(*"abcdefgh")
    for path in (tmp_path / "warm", tmp_path / "a table", deep / "a table"):
        lance_core.write_dataset(ROW, path)
    lance_core.dataset(str(tmp_path / "warm"))
    flat, nested = (calls_of(lambda path=path: lance_core.dataset(str(path / "a table"))) for path in (tmp_path, deep))
    assert flat == nested


def test_calls_of_a_take_from_a_table_that_was_asked_before(tmp_path, calls_of):
    counts = []
    for number in (1, 41):
        table = lance_core.write_dataset(columns(number), tmp_path / f"{number}")
        table.take([1, 500, 998])
        counts.append(calls_of(lambda table=table: table.take([1, 500, 998])))
    one, each = counts[0], (counts[1] - counts[0]) / 40
    assert one <= 340, one
    assert each <= 100, each


def test_calls_of_a_take_of_nested_columns(tmp_path, calls_of):
    """Lists and structs, three leaves."""
    counts, numbers = (np.random.default_rng(1).integers(0, most, 20_000).tolist() for most in (4, 50))
    rows = [
        {"items": [{"name": f"n{one}", "price": one / 8} for one in numbers[row : row + count]], "tags": ["t"] * count}
        for row, count in enumerate(counts)
    ]
    table = lance_core.write_dataset(pa.Table.from_pylist(rows), tmp_path / "t")
    for row in (700, 701):
        table.take([row])
    found = calls_of(lambda: table.take([701]))
    assert found <= 600, found


def test_calls_of_a_table_that_is_opened_again(tmp_path, calls_of):
    """Neither metadata nor chunk tables of its files are decoded once more."""
    counts = []
    for number in (1, 41):
        lance_core.write_dataset(columns(number), tmp_path / f"{number}")
        lance_core.dataset(tmp_path / f"{number}").take([1, 500, 998])
        counts.append(calls_of(lambda path=tmp_path / f"{number}": lance_core.dataset(path).take([1, 500, 998])))
    one, each = counts[0], (counts[1] - counts[0]) / 40
    assert one <= 1000, one
    assert each <= 190, each


def upsert(table, number):
    merge = table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    merge.execute(pa.table({"id": [number, 1000 + number], "value": [0, 1]}))


CHANGES = {
    "delete": (0.7, lambda table, number: table.delete(f"id = {number}")),
    "update": (0.85, lambda table, number: table.update({"value": "value + 1"}, where=f"id = {number}")),
    "upsert": (0.95, upsert),
}


@pytest.mark.parametrize("change", CHANGES)
def test_calls_of_changes_of_a_table_that_was_changed_before(tmp_path, calls_of, change):
    """What the same object has opened, files and indices, is not opened again."""
    share, do = CHANGES[change]
    numbers = np.arange(500)
    table = lance_core.write_dataset(pa.table({"id": numbers, "value": numbers}), tmp_path)
    table.create_scalar_index("id", "BTREE")
    for number in range(3):
        do(lance_core.dataset(tmp_path), number)
    table = lance_core.dataset(tmp_path)
    first, second = (calls_of(lambda number=number: do(table, number)) for number in (3, 4))
    assert second <= share * first, (first, second)
    assert table.count_rows("id in (0, 3, 4)") == (0 if change == "delete" else 3)


def with_versions(path, number):
    """A table of so many versions that are alike."""
    first = lance_core.write_dataset(ROW, path).snapshot.manifest
    store = LocalStore(str(path))
    for version in range(2, number + 1):
        store.put(
            manifest_path(version, ManifestNaming.V2), b"".join(encode_manifest_pieces(replace(first, version=version)))
        )
    return str(path)


def test_calls_of_a_version_that_is_opened_again(tmp_path, calls_of):
    """A manifest of the same bytes is not decoded once more, nor are its fragments counted."""
    lance_core.write_dataset(columns(6), tmp_path, max_rows_per_file=100)
    for _ in range(2):
        lance_core.dataset(tmp_path).count_rows()
    assert calls_of(lambda: lance_core.dataset(str(tmp_path))) <= 205
    assert calls_of(lambda: lance_core.dataset(str(tmp_path)).count_rows()) <= 225


def test_a_version_is_what_its_file_says_whatever_was_known(tmp_path):
    first = lance_core.write_dataset(ROW, tmp_path).snapshot.manifest
    for _ in range(2):
        assert lance_core.dataset(tmp_path).count_rows() == 1
    store = LocalStore(str(tmp_path))
    changed = replace(first, config={"some": "text"})
    store.put(manifest_path(1, ManifestNaming.V2), b"".join(encode_manifest_pieces(changed)))
    assert lance_core.dataset(tmp_path).config() == {"some": "text"}
    store.put(manifest_path(2, ManifestNaming.V2), b"".join(encode_manifest_pieces(changed)))
    with pytest.raises(CorruptDataError, match="the manifest of version 2 contains version 1") as raised:
        lance_core.dataset(tmp_path)
    assert raised.value.path is not None
    assert raised.value.path.endswith(manifest_path(2, ManifestNaming.V2))


def test_calls_of_a_version_in_a_clean_up(tmp_path, calls_of):
    counts = []
    for number in (20, 120):
        for name in ("warm", "counted"):
            path = with_versions(tmp_path / f"{number} {name}", number)
            clean_up = lance_core.dataset(path).cleanup_old_versions
            counts.append(calls_of(lambda clean_up=clean_up: clean_up(older_than=timedelta(0), retain_versions=1)))
    assert (counts[3] - counts[1]) / 100 <= 76


def test_calls_of_columns_that_were_read_before(tmp_path, calls_of):
    """For each fragment: what was learnt of its pages is not learnt anew. Half of it puts planes of bytes together."""
    rng = np.random.default_rng(5)
    rows = 60_000

    def table(count):
        prices = np.round(rng.random(count * rows) * 50) / 4 + 1e6
        return pa.table({"number": np.arange(count * rows) * 7, "price": prices})

    calls = []
    for count in (2, 6):
        path = str(tmp_path / str(count))
        lance_core.write_dataset(table(count), path, max_rows_per_file=rows)
        dataset = lance_core.dataset(path)
        assert len(dataset.get_fragments()) == count
        first = calls_of(dataset.to_table)
        calls.append(calls_of(dataset.to_table))
        assert calls[-1] < first * 0.8
    each = (calls[1] - calls[0]) / 4
    assert each <= 1125, each


def columns_of_many_kinds(rows):
    rng, number = np.random.default_rng(5), np.arange(rows)
    return {
        "id": number,
        "time": number * 977 + rng.integers(0, 900, rows),
        "amount": np.round(rng.gamma(2, 5, rows), 2),
        "code": rng.integers(0, 1 << 40, rows),
        "part": pa.array([None if one % 9 == 0 else f"p{one % 13}" for one in range(rows)]),
        "zone": pa.array([f"zone {one % 977}" for one in range(rows)]),
        "text": pa.array([f"https://example.org/{one * 7919 % rows}/a/page" for one in range(rows)]),
        "flag": pa.array(rng.random(rows) < 0.5, mask=rng.random(rows) < 0.1),
    }


def test_calls_of_a_column_in_a_window_of_rows(tmp_path, calls_of):
    columns = columns_of_many_kinds(20_000)
    whole = lance_core.write_dataset(pa.table(columns), tmp_path)

    def window(names):
        return whole.to_table(columns=names, offset=10_000, limit=1_000)

    counts = []
    for names in (["id"], [*columns]):
        for _ in range(3):
            window(names)
        counts.append(calls_of(lambda names=names: window(names)))
    assert (counts[1] - counts[0]) / (len(columns) - 1) <= 245
    assert window([*columns]).equals(pa.table(columns).slice(10_000, 1_000))
