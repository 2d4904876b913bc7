"""Indices of pylance over members of JSON documents: lance_core answers from them as from a scan."""

import json
import shutil
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance.indices import IndexConfig

import lance_core
from lance_core.errors import CorruptDataError

pytestmark = pytest.mark.filterwarnings("ignore::lance_core.errors.IndexCoverageWarning")

CONDITIONS = {
    "json_get_int(doc, 'a') = 3": "a",
    "json_get_int(doc, 'a') IN (3, 5)": "a",
    "NOT (json_get_int(doc, 'a') < 4)": "a",
    "json_get_int(doc, 'a') IS NULL": "a",
    "json_get_string(doc, 's') = 't3'": "s",
    "json_get_float(doc, 'f') > 40.0": "f",
    "json_get_bool(doc, 'b')": "b",
    "NOT json_get_bool(doc, 'b')": "b",
    # Members of that name there are none; the index is over one inside of another, and pylance answers from it.
    "json_get_int(doc, 'n.m') = 17": None,
    # Values of another type than those of the index.
    "json_get_string(doc, 'a') = '3'": None,
    "json_get_int(doc, 'f') = 3": None,
    "json_extract(doc, '$.a') = '3'": None,
}


def rows(start, count):
    numbers = range(start, start + count)
    documents = [
        json.dumps({"a": i % 7, "s": f"t{i % 5}", "f": i / 4, "b": i % 2 == 0, "n": {"m": i}}) if i % 11 else None
        for i in numbers
    ]
    documents[1] = json.dumps({"a": None})
    return pa.table({"id": numbers, "doc": pa.array(documents, pa.json_())})


def make(path, table, *, stable):
    uri = str(path)
    lance.write_dataset(table, uri, max_rows_per_file=100, enable_stable_row_ids=stable)
    for member, kind in (("a", "btree"), ("s", "bitmap"), ("$.f", "btree"), ("b", "btree"), ("n.m", "btree")):
        target = "bitmap" if stable else kind  # pylance 14.0.2 builds no others there
        config = IndexConfig(index_type="json", parameters={"target_index_type": target, "path": member})
        lance.dataset(uri).create_scalar_index("doc", config, name=member.removeprefix("$."))
    return uri


@pytest.fixture(params=[False, True], ids=["addresses", "stable ids"])
def uri(request, tmp_path):
    return make(tmp_path / "t", rows(0, 200), stable=request.param)


def check(uri, *, uses=True):
    ours = lance_core.dataset(uri)
    for condition, name in CONDITIONS.items():
        expected = ours.to_table(["id"], filter=condition, use_scalar_index=False)
        assert ours.to_table(["id"], filter=condition).equals(expected), condition
        assert ours.count_rows(condition) == len(expected)
        plan = ours.scanner(filter=condition).explain_plan()
        if uses:
            assert ("no index is used" in plan) if name is None else (f"index kinds: {name} Json" in plan), condition


def test_conditions_on_members_are_answered(uri):
    check(uri)
    lance.write_dataset(rows(200, 50), uri, mode="append")
    lance_core.dataset(uri).delete("id % 10 = 3")
    lance_core.dataset(uri).update({"doc": '\'{"a": 3, "s": "t3"}\''}, where="id % 20 = 5")
    check(uri)


def test_indices_over_members_are_kept_by_writers(uri):
    names = {index["name"] for index in lance_core.dataset(uri).list_indices()}
    lance_core.dataset(uri).optimize.optimize_indices()
    lance_core.dataset(uri).optimize.compact_files()
    check(uri, uses=False)
    assert {index["name"] for index in lance_core.dataset(uri).list_indices()} == names


def test_compaction_tells_them_where_rows_went(uri):
    lance_core.dataset(uri).delete("id % 10 = 3")
    lance_core.dataset(uri).optimize.compact_files()
    check(uri)
    theirs = lance.dataset(uri)
    for condition, name in CONDITIONS.items():
        expected = theirs.to_table(["id"], filter=condition, use_scalar_index=False)
        assert name is None or theirs.to_table(["id"], filter=condition).equals(expected), condition
    (fragment,) = theirs.get_fragments()
    for index in lance_core.dataset(uri).describe_indices():
        assert {number for segment in index.segments for number in segment.fragment_ids} == {fragment.fragment_id}
    assert wrong(uri) == set()


def test_a_damaged_one_is_told(uri):
    (index,) = (index for index in lance_core.dataset(uri).list_indices() if index["name"] == "a")
    for file in (Path(uri) / "_indices" / index["uuid"]).iterdir():
        file.write_bytes(b"damage")
    with pytest.raises(CorruptDataError, match="drop_index"):
        lance_core.dataset(uri).count_rows("json_get_int(doc, 'a') = 3")
    assert lance_core.dataset(uri).count_rows("json_get_string(doc, 's') = 't3'") > 0


def folder_of(uri, name):
    (index,) = (index for index in lance_core.dataset(uri).list_indices() if index["name"] == name)
    return Path(uri, "_indices", index["uuid"])


def wrong(uri, **options):
    report = lance_core.verify(uri, level="indices", **options)
    return {(problem.index_name, problem.fragment_id) for problem in report.problems if problem.index_name}


def test_an_audit_compares_members_with_what_the_index_holds(uri):
    lance_core.dataset(uri).delete("id % 10 = 3")
    assert wrong(uri) == wrong(uri, sample_rows=50) == set()
    other = make(Path(uri).with_name("other"), rows(3, 200), stable=lance_core.dataset(uri).has_stable_row_ids)
    for name in "asfb":
        shutil.rmtree(folder_of(uri, name))
        shutil.copytree(folder_of(other, name), folder_of(uri, name))
    assert wrong(uri) == {(name, number) for name in "asfb" for number in (0, 1)}
    assert {name for name, _ in wrong(uri, sample_rows=200)} == set("asfb")
    assert lance_core.repair(uri) == dict.fromkeys("asfb", "dropped")
    assert wrong(uri) == set()
    check(uri, uses=False)
