"""Branches, clones, base paths and detached versions: pylance works on ours, we work on pylance's."""

from datetime import timedelta

import lance
import pyarrow as pa
import pytest

import lance_core
from lance_core import DatasetBasePath, LanceDataset, LanceOperation


def rows(start, end):
    return pa.table({"x": pa.array(range(start, end))})


def values(dataset):
    return sorted(dataset.to_table()["x"].to_pylist())


def agree(uri, reference=None):
    """Values of a version, as both read it."""
    ours = lance_core.dataset(uri, reference)
    theirs = lance.dataset(ours.uri, version=ours.version)
    assert values(ours) == values(theirs)
    theirs.validate()
    return values(ours)


@pytest.fixture(params=["ours", "pylance"])
def maker(request):
    return lance_core if request.param == "ours" else lance


@pytest.fixture(params=[False, True], ids=["addresses", "stable row ids"])
def table(maker, tmp_path, request):
    uri = str(tmp_path / "t")
    maker.write_dataset(rows(0, 10), uri, enable_stable_row_ids=request.param)
    dataset = maker.write_dataset(rows(10, 20), uri, mode="append")
    dataset.delete("x = 3")
    return dataset


def test_both_work_on_a_branch(table):
    table.create_branch("feat/a", 3)
    root = table.uri
    branch = lance_core.dataset(root, branch="feat/a")
    branch = lance_core.write_dataset(rows(20, 30), branch, mode="append")
    branch.delete("x = 4")
    theirs = lance.dataset(root).checkout_version(("feat/a", None))
    theirs = lance.write_dataset(rows(30, 40), theirs, mode="append")
    theirs.delete("x = 5")
    theirs.optimize.compact_files()
    branch.checkout_latest()
    assert branch.version == theirs.version
    assert agree(root, ("feat/a", None)) == [x for x in range(40) if x not in {3, 4, 5}]
    branch.optimize.compact_files()
    branch.tags.create("t")
    assert lance.dataset(root).tags.list()["t"]["branch"] == "feat/a"
    assert lance.dataset(root, version="t").count_rows() == 37
    assert agree(root) == [x for x in range(20) if x != 3]
    assert [entry["version"] for entry in branch.versions()] == [
        entry["version"] for entry in lance.dataset(branch.uri).versions()
    ]
    ours, judge = lance_core.dataset(root).branches.list(), lance.dataset(root).branches.list()
    assert ours == judge


def test_chains_of_branches(table, maker):
    other = lance if maker is lance_core else lance_core
    root = table.uri
    first = maker.write_dataset(rows(20, 30), table.create_branch("a", 3), mode="append")
    parent = other.dataset(root).checkout_version(("a", None))
    second = other.write_dataset(rows(30, 40), parent.create_branch("b", ("a", first.version)), mode="append")
    second.delete("x = 25")
    child = maker.dataset(root).checkout_version(("b", None))
    third = maker.write_dataset(rows(40, 50), child.create_branch("c", ("b", second.version)), mode="append")
    assert agree(root, ("c", None)) == [x for x in range(50) if x not in {3, 25}]
    identifiers = [
        [entry["branch_identifier"] for _, entry in sorted(each.dataset(root).branches.list().items())]
        for each in (lance, lance_core)
    ]
    assert identifiers[0] == identifiers[1]
    assert [len(entry) for entry in identifiers[0]] == [1, 2, 3]
    for each in (lance, lance_core):
        with pytest.raises((OSError, ValueError), match="b"):
            each.dataset(root).branches.delete("b")
    other.dataset(root).branches.delete("c")
    maker.dataset(root).branches.delete("b")
    assert third.version
    assert [*lance.dataset(root).branches.list()] == [*lance_core.dataset(root).branches.list()] == ["a"]


def test_clones(table, maker, tmp_path):
    clone = str(tmp_path / "c")
    assert table.shallow_clone(clone, 3).version == 3
    ours = lance_core.write_dataset(rows(50, 60), clone, mode="append")
    ours.delete("x < 2")
    theirs = lance.dataset(clone)
    theirs.delete("x = 55")
    theirs.optimize.compact_files()
    assert agree(clone) == [x for x in (*range(2, 20), *range(50, 60)) if x not in {3, 55}]
    lance_core.dataset(clone).optimize.compact_files()
    deep = str(tmp_path / "d")
    maker.dataset(clone).deep_clone(deep, ours.version)
    assert agree(deep) == [x for x in (*range(2, 20), *range(50, 60)) if x != 3]
    assert lance_core.dataset(deep).base_paths() == {}


def test_clean_up_by_either_side_keeps_what_branches_and_tags_need(table, maker):

    root = table.uri
    branch = maker.write_dataset(rows(20, 30), table.create_branch("a", 2), mode="append")
    branch.tags.create("kept", ("a", 3))
    maker.write_dataset(rows(30, 40), branch, mode="overwrite")
    maker.write_dataset(rows(40, 50), root, mode="overwrite")
    for each in (lance_core, lance):
        for reference in (("main", None), ("a", None)):
            each.dataset(root).checkout_version(reference).cleanup_old_versions(
                older_than=timedelta(0),
                delete_unverified=True,
                error_if_tagged_old_versions=False,
                **({"force": True} if each is lance_core else {}),
            )
    assert agree(root) == list(range(40, 50))
    assert agree(root, ("a", None)) == list(range(30, 40))
    assert agree(root, "kept") == list(range(30))


def test_base_paths(maker, tmp_path):
    base = DatasetBasePath if maker is lance_core else lance.DatasetBasePath
    root = str(tmp_path / "t")
    places = [
        base(str(tmp_path / "hot"), name="hot", is_dataset_root=True),
        base(str(tmp_path / "cold"), name="cold"),
    ]
    maker.write_dataset(rows(0, 10), root, initial_bases=places, target_bases=["hot", "cold"], max_rows_per_file=2)
    lance_core.write_dataset(rows(10, 14), root, mode="append", target_bases=["cold"])
    lance.write_dataset(rows(14, 20), root, mode="append", target_bases=["hot"])
    ours = lance_core.write_dataset(rows(20, 26), root, mode="append", target_all_bases=True, max_rows_per_file=2)
    ours.add_bases([DatasetBasePath(str(tmp_path / "more"), "more")])
    theirs = lance.dataset(root)
    theirs.add_bases([lance.DatasetBasePath(str(tmp_path / "last"), name="last")])
    assert agree(root) == list(range(26))
    described = {
        number: (place.path, place.is_dataset_root) for number, place in lance_core.dataset(root).base_paths().items()
    }
    assert described == {
        number: (place.path, place.is_dataset_root) for number, place in lance.dataset(root).base_paths().items()
    }
    assert sorted(described) == [1, 2, 3, 4]
    lance_core.dataset(root).delete("x % 5 = 0")
    lance.dataset(root).delete("x % 5 = 1")
    assert agree(root) == [x for x in range(26) if x % 5 > 1]
    lance_core.dataset(root).optimize.compact_files()
    assert agree(root) == [x for x in range(26) if x % 5 > 1]


def test_detached_versions(table):
    root = table.uri
    staged = lance_core.write_fragments(rows(20, 25), root)
    ours = LanceDataset.commit(root, LanceOperation.Append(staged), read_version=3, detached=True)
    assert agree(root, ours.version) == [x for x in range(25) if x != 3]
    operation = lance.LanceOperation.Append([lance.fragment.LanceFragment.create(root, rows(30, 31))])
    theirs = lance.LanceDataset.commit(root, operation, read_version=ours.version, detached=True)
    assert agree(root, theirs.version) == [x for x in (*range(25), 30) if x != 3]
    assert lance.dataset(root).version == lance_core.dataset(root).version == 3


def test_pylance_finds_our_operations(table):
    root = table.uri
    dataset = lance_core.dataset(root)
    operations = [
        LanceOperation.UpdateConfig(
            config_updates=LanceOperation.UpdateMap({"k": "v"}),
            table_metadata_updates=LanceOperation.UpdateMap({"t": "m"}),
            schema_metadata_updates=LanceOperation.UpdateMap({"s": "m"}),
            field_metadata_updates={0: LanceOperation.UpdateMap({"f": "m"})},
        ),
        LanceOperation.UpdateBases([DatasetBasePath("/somewhere", "s")]),
        LanceOperation.ReserveFragments(2),
        LanceOperation.DataReplacement(
            [LanceOperation.DataReplacementGroup(1, lance_core.write_fragments(rows(90, 100), root)[0].files[0])]
        ),
    ]
    for operation in operations:
        dataset = LanceDataset.commit(dataset, operation, read_version=dataset.version, commit_message="m")
        found = lance.dataset(root).read_transaction(dataset.version)
        assert found.transaction_properties == {"__lance_commit_message": "m"}
    judge = lance.dataset(root)
    assert (judge.config(), judge.metadata) == ({"k": "v"}, {"t": "m"})
    assert judge.schema.metadata == {b"s": b"m"}
    assert judge.schema.field("x").metadata == {b"f": b"m"}
    assert agree(root) == [x for x in (*range(10), *range(90, 100)) if x != 3]
    lance.write_dataset(rows(200, 201), root, mode="append")
    assert agree(root)[-1] == 200


def test_indices_of_pylance_survive_our_operations(table):
    root = table.uri
    lance.dataset(root).create_scalar_index("x", "BTREE")
    operation = lance_core.dataset(root).read_transaction(4).operation
    assert [index.name for index in operation.new_indices] == ["x_idx"]
    index = operation.new_indices[0]
    dataset = lance_core.dataset(root)
    for change in ([], [index]), ([index], []):
        dataset = LanceDataset.commit(dataset, LanceOperation.CreateIndex(*change), read_version=dataset.version)
    judge = lance.dataset(root)
    assert [one.name for one in judge.describe_indices()] == ["x_idx"]
    assert judge.to_table(filter="x = 7")["x"].to_pylist() == [7]
    branch = dataset.create_branch("i")
    theirs = lance.dataset(branch.uri)
    assert theirs.to_table(filter="x = 7")["x"].to_pylist() == [7]
    assert "ScalarIndex" in theirs.scanner(filter="x = 7").explain_plan(verbose=True)
    replaced = lance_core.write_fragments(rows(90, 100), root)[0].files[0]
    group = LanceOperation.DataReplacementGroup(1, replaced)
    LanceDataset.commit(root, LanceOperation.DataReplacement([group]), read_version=dataset.version)
    judge = lance.dataset(root)
    assert judge.to_table(filter="x = 95")["x"].to_pylist() == [95]
    assert judge.to_table(filter="x = 15")["x"].to_pylist() == []


def test_v1_names_are_migrated_by_either_side(maker, tmp_path):
    root = str(tmp_path / "t")
    other = lance if maker is lance_core else lance_core
    maker.write_dataset(rows(0, 1), root, enable_v2_manifest_paths=False)
    other.write_dataset(rows(1, 2), root, mode="append")
    assert (tmp_path / "t" / "_versions" / "2.manifest").exists()
    other.dataset(root).migrate_manifest_paths_v2()
    assert not (tmp_path / "t" / "_versions" / "2.manifest").exists()
    assert maker.write_dataset(rows(2, 3), root, mode="append").version == 3
    assert agree(root) == [0, 1, 2]
