"""Row ids, row versions and what follows from them, seen by pylance and by lance_core on the same tables."""

import lance
import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import InvalidInputError, VersionNotFoundError

COLUMNS = ["id", "b", "_rowid", "_row_created_at_version", "_row_last_updated_at_version"]
SPILL = {"lance.row_lineage.spill": "true", "lance.row_lineage.inline_max_bytes": "0"}


def rows(ids, text):
    return pa.table({"id": pa.array(ids, pa.int64()), "b": [text] * len(ids)})


def upsert(dataset, ids, text):
    builder = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    return builder.execute(rows(ids, text))


@pytest.fixture(params=["inline", "spilled"])
def path(tmp_path, request):
    """A table with some history; pylance keeps its lineage in the manifest or in data files."""
    dataset = lance.write_dataset(rows(range(6), "v1"), tmp_path / "t", enable_stable_row_ids=True, max_rows_per_file=3)
    dataset.update_config(SPILL if request.param == "spilled" else {"x": "y"})
    dataset = lance.write_dataset(rows([6, 7], "v3"), tmp_path / "t", mode="append")
    upsert(dataset, [1, 9], "v4")
    dataset.update({"b": "'v5'"}, where="id = 7")
    dataset.delete("id = 3")
    dataset.optimize.compact_files()
    dataset.delete("id in (0, 2)")
    dataset.update({"b": "'last'"}, where="id = 9")
    assert bool(lance_core.dataset(tmp_path / "t").snapshot.manifest.reader_feature_flags & 2048) == (
        request.param == "spilled"
    )
    return tmp_path / "t"


def check_same(path):
    ours, theirs = lance_core.dataset(path), lance.dataset(path)
    theirs.validate()
    assert ours.to_table(columns=COLUMNS) == theirs.to_table(columns=COLUMNS)
    return ours, theirs


def test_ids_and_versions(path):
    ours, theirs = check_same(path)
    for condition in ("_row_created_at_version > 1", "_row_last_updated_at_version = 5", "_rowid in (1, 7)"):
        assert ours.to_table(columns=["id"], filter=condition) == theirs.to_table(columns=["id"], filter=condition)


@pytest.mark.parametrize("ids", [[1, 5, 7], [0, 1], [8, 1, 1], [1000], [7, 4, 99, 4]])
def test_rows_by_their_ids(path, ids):
    ours, theirs = check_same(path)
    assert ours._take_rows(ids).to_pylist() == theirs._take_rows(ids).to_pylist()
    assert ours._take_rows(ids, columns=["b", "_rowid"]) == theirs._take_rows(ids, columns=["b", "_rowid"])


def test_rows_by_their_addresses(tmp_path):
    lance.write_dataset(rows(range(9), "x"), tmp_path / "t", max_rows_per_file=3).delete("id in (1, 5)")
    ours, theirs = lance_core.dataset(tmp_path / "t"), lance.dataset(tmp_path / "t")
    addresses = theirs.to_table(with_row_id=True)["_rowid"].to_pylist()[::-1]
    assert ours._take_rows(addresses) == theirs._take_rows(addresses)
    assert ours._take_rows([0, 1, 2])["id"].to_pylist() == [0, 2]
    with pytest.raises(InvalidInputError, match="fragment 7"):
        ours._take_rows([7 << 32])


@pytest.mark.parametrize(
    "span", [{"compared_against": 1}, {"begin_version": 3, "end_version": 5}, {"begin_version": 5, "end_version": 3}]
)
def test_deltas(path, span):
    ours, theirs = (one.delta(**span) for one in check_same(path))
    assert ours.get_inserted_rows().read_all() == theirs.get_inserted_rows().read_all()
    assert ours.get_updated_rows().read_all() == theirs.get_updated_rows().read_all()
    assert len(ours.list_transactions()) == len(theirs.list_transactions())
    if span.get("begin_version") == 5:
        with pytest.raises(InvalidInputError):
            ours.get_deleted_row_ids()
        return
    deleted = theirs.get_deleted_row_ids().read_all().sort_by("_rowid")
    assert ours.get_deleted_row_ids().read_all() == deleted


def test_deltas_need_two_versions(path):
    dataset = lance_core.dataset(path)
    for span in ({}, {"begin_version": 1}, {"end_version": 1}):
        with pytest.raises(InvalidInputError):
            dataset.delta(**span)
    with pytest.raises(VersionNotFoundError):
        dataset.delta(begin_version=1, end_version=50).get_inserted_rows()
    with pytest.raises(VersionNotFoundError):
        dataset.delta(begin_version=1, end_version=50).list_transactions()


def test_without_stable_row_ids_there_is_no_delta(tmp_path):
    lance.write_dataset(rows(range(3), "x"), tmp_path / "t").update({"b": "'y'"}, where="id = 1")
    ours, theirs = check_same(tmp_path / "t")
    delta = ours.delta(1)
    assert delta.get_updated_rows().read_all() == theirs.delta(1).get_updated_rows().read_all()
    with pytest.raises(InvalidInputError, match="stable row ids"):
        delta.get_deleted_row_ids()


def test_our_changes_keep_ids_and_versions(path):
    dataset = lance_core.dataset(path)
    before = {row["id"]: row for row in dataset.to_table(columns=COLUMNS).to_pylist()}
    upsert(dataset, [1, 20], "ours")
    version = dataset.version
    dataset.update({"b": "'ours too'"}, where="id = 4")
    moved = {row["id"]: row for row in dataset.to_table(columns=COLUMNS).to_pylist()}
    assert (moved[20]["_row_created_at_version"], moved[1]["_row_last_updated_at_version"]) == (version, version)
    lance.dataset(path).add_columns({"c": "id"})
    columns = lance_core.dataset(path).merge_insert("id").when_matched_update_all().write_mode("rewrite_columns")
    columns.execute(rows([5], "in place"))
    lance_core.dataset(path).optimize.compact_files()
    _, theirs = check_same(path)
    after = {row["id"]: row for row in theirs.to_table(columns=COLUMNS).to_pylist()}
    for key, row in before.items():
        assert (after[key]["_rowid"], after[key]["_row_created_at_version"]) == (
            row["_rowid"],
            row["_row_created_at_version"],
        )
    assert after[4]["b"] == "ours too"
    assert after[5]["b"] == "in place"
    assert len({row["_rowid"] for row in after.values()}) == len(after)


def test_ids_in_every_form_of_segment(tmp_path):
    """Moves and compactions leave ranges, holes, bitmaps and arrays; both read what either wrote."""
    path = tmp_path / "t"
    lance.write_dataset(rows(range(2000), "x"), path, enable_stable_row_ids=True, max_rows_per_file=500)
    for module, condition in [
        (lance_core, "id % 100 = 7"),
        (lance, "id % 3 = 0"),
        (lance_core, "id in (5, 1999, 1000)"),
        (lance, "id = 1 or id = 1500"),
        (lance_core, "id % 2 = 0"),
    ]:
        module.dataset(path).update({"b": "b || '!'"}, where=condition)
        module.dataset(path).optimize.compact_files(target_rows_per_fragment=700)
        check_same(path)
    ours, theirs = check_same(path)
    ids = list(range(0, 2000, 7))
    assert ours._take_rows(ids).to_pylist() == theirs._take_rows(ids).to_pylist()
