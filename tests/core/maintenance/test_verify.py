"""Looks at whole tables: sound ones, and ones that were damaged in each possible way."""

import random

import pyarrow as pa
import pytest

import lance_core
from lance_core.cli.main import main
from lance_core.errors import DatasetNotFoundError, InvalidInputError, LanceError
from lance_core.format.table.paths import TAGS_FOLDER
from lance_core.maintenance.verify_report import MAX_PROBLEMS, VerifyProblem, VerifyReport


def rows(start, count=100):
    return pa.table({"a": range(start, start + count), "s": [f"row {number}" for number in range(count)]})


@pytest.fixture
def dataset(tmp_path):
    dataset = lance_core.write_dataset(rows(0), tmp_path / "t", enable_stable_row_ids=True)
    dataset = lance_core.write_dataset(rows(100), dataset, mode="append")
    dataset.delete("a < 10")
    dataset.create_scalar_index("a", "ZONEMAP")
    dataset.tags.create("kept", 2)
    return dataset


def files(dataset, folder):
    return sorted(info.path for info in dataset.snapshot.store.list(folder))


def problems(dataset, level="quick"):
    report = lance_core.verify(dataset.uri, level=level)
    assert report.num_problems == len(report.problems)
    return [(one.kind, one.path) for one in report.problems]


def test_a_sound_table(dataset):
    for level in ("quick", "full"):
        stages = []
        report = dataset.verify(level=level, progress=lambda what, *_, stages=stages: stages.append(what))
        assert report.is_ok, str(report)
        assert (report.version, report.num_versions, report.num_fragments, report.num_rows) == (4, 4, 2, 190)
        assert report.num_orphans == 0
        assert (report.num_bytes_read > 0) == (level == "full")
        assert stages[-1] == "done"
        assert "nothing is wrong" in str(report)


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_after_all_kinds_of_changes(tmp_path, version):
    dataset = lance_core.write_dataset(rows(0), tmp_path / "t", data_storage_version=version)
    dataset.update({"s": "'x'"}, where="a = 5")
    dataset.add_columns({"b": "a + 1"})
    dataset.drop_columns(["s"])
    dataset.replace_where("a < 50", pa.table({"a": [1000], "b": [1]}))
    dataset.optimize.compact_files()
    dataset.create_branch("branch")
    dataset.restore()
    report = dataset.verify(level="full")
    assert report.is_ok, str(report)
    assert lance_core.verify(f"{dataset.uri}/tree/branch", level="full").is_ok


def test_missing_and_short_files(dataset):
    store = dataset.snapshot.store
    data, deletion, index = files(dataset, "data"), files(dataset, "_deletions")[0], files(dataset, "_indices")[0]
    store.put(data[0], store.get(data[0])[:-10])
    store.delete([data[1], deletion, index])
    found = problems(dataset)
    broken = {("data_file", data[0]), ("data_file", data[1]), ("deletion_file", deletion), ("index", index)}
    assert set(found) == {*broken, ("row_ids", None)}, "which of the rows are left is unknown, too"
    report = lance_core.verify(dataset.uri, level="full")
    assert {"values", "data_file"} <= {one.kind for one in report.problems}
    assert "fragment 1" in str(report)


def test_damaged_values(dataset):
    store = dataset.snapshot.store
    (first, _) = files(dataset, "data")
    data = bytearray(store.get(first))
    data[8:64] = bytes(len(data[8:64]))
    data[-200:-150] = b"\xff" * 50
    store.put(first, bytes(data))
    assert problems(dataset) == []
    found = problems(dataset, "full")
    assert {kind for kind, _ in found} == {"checksum", "values"}


def test_damaged_deletions(dataset):
    store = dataset.snapshot.store
    (path,) = files(dataset, "_deletions")
    store.put(path, b"garbage")
    assert ("deletion_file", path) in problems(dataset)


def test_damaged_manifests_and_tags(dataset):
    store = dataset.snapshot.store
    old = f"_versions/{2**64 - 1 - 2:020d}.manifest"
    store.put(old, b"garbage")
    store.put(f"{TAGS_FOLDER}/broken.json", b"{")
    store.put(f"{TAGS_FOLDER}/dangling.json", b'{"version": 99, "manifestSize": 1}')
    report = lance_core.verify(dataset.uri)
    assert [(one.kind, one.version) for one in report.problems if one.kind == "manifest"] == [("manifest", 2)]
    assert sum(one.kind == "ref" for one in report.problems) == 2
    assert report.num_versions == 3
    assert report.version == 4
    newest = f"_versions/{2**64 - 1 - 4:020d}.manifest"
    store.put(newest, b"")
    assert lance_core.verify(dataset.uri).version is None
    store.put("_versions/7.manifest", b"of the other naming scheme")
    assert problems(dataset)[0][0] == "manifest"


def test_tags_are_judged_on_their_branch(dataset):
    branch = dataset.create_branch("b", 4)
    branch.tags.create("on-branch", ("b", 4))
    assert branch.verify().is_ok, "the tag on version 2 of the main branch is no business of the branch"
    store = dataset.snapshot.store
    store.put(f"{TAGS_FOLDER}/lost.json", b'{"version": 77, "manifestSize": 1, "branch": "b"}')
    assert dataset.verify().is_ok
    assert [one.kind for one in branch.verify().problems] == ["ref"]


def test_missing_transactions(dataset):
    store = dataset.snapshot.store
    store.delete(files(dataset, "_transactions"))
    assert problems(dataset) == [], "the manifests hold them as well"


def test_files_of_no_version(dataset):
    store = dataset.snapshot.store
    store.put("data/orphan.lance", b"12345")
    store.put("_indices/unknown/x", b"123")
    report = dataset.verify()
    assert report.is_ok
    assert (report.num_orphans, report.orphan_bytes) == (2, 8)


def test_no_table(tmp_path):
    with pytest.raises(DatasetNotFoundError):
        lance_core.verify(tmp_path / "nothing")
    with pytest.raises(InvalidInputError, match="level"):
        lance_core.verify(tmp_path / "nothing", level="deep")


def test_many_problems_are_counted():
    report = VerifyReport(uri="x", level="quick")
    for number in range(MAX_PROBLEMS + 5):
        report.add(VerifyProblem(kind="data_file", message="missing", fragment_id=number))
    assert len(report.problems) == MAX_PROBLEMS
    assert str(report).endswith("- and 5 more")


@pytest.mark.parametrize("seed", range(40))
def test_garbage_is_told_and_nothing_else_raised(tmp_path, seed):
    """Bytes of any file turn into others; the report may find nothing, but it comes."""
    chance = random.Random(seed)
    dataset = lance_core.write_dataset(rows(0), tmp_path / "t", enable_stable_row_ids=seed % 2 == 0)
    dataset.delete("a < 10")
    dataset.create_scalar_index("a", "ZONEMAP")
    store = dataset.snapshot.store
    paths = [path for folder in ("data", "_deletions", "_indices", "_versions") for path in files(dataset, folder)]
    path = chance.choice(paths)
    data = bytearray(store.get(path))
    for _ in range(chance.choice([1, 5, 50])):
        data[chance.randrange(len(data))] = chance.randrange(256)
    store.put(path, bytes(data[: chance.choice([len(data), chance.randrange(len(data))])]))
    try:
        report = lance_core.verify(dataset.uri, level="full")
    except LanceError:
        return
    assert isinstance(str(report), str)


def test_command(dataset, capsys, tmp_path):
    assert main(["verify", dataset.uri, "--level", "full"]) == 0
    assert "nothing is wrong" in capsys.readouterr().out
    dataset.snapshot.store.delete(files(dataset, "data")[:1])
    assert main(["verify", dataset.uri]) == 1
    assert "data_file: the file is missing" in capsys.readouterr().out
    assert main(["verify", str(tmp_path / "nothing")]) == 2
    assert "DatasetNotFoundError" in capsys.readouterr().err


@pytest.mark.slow
def test_other_stores(s3):
    options = s3.storage_options
    dataset = lance_core.write_dataset(rows(0), f"{s3.uri}/t.lance", storage_options=options)
    assert lance_core.verify(dataset.uri, level="full", storage_options=options).is_ok
    dataset.snapshot.store.delete(files(dataset, "data"))
    assert not lance_core.verify(dataset.uri, storage_options=options).is_ok


def test_bytes_that_changed_are_told_of(tmp_path, monkeypatch):
    """Even padding, even with checksums switched off for reads; files of other writers have none."""
    monkeypatch.setenv("LANCE_CORE_CHECKSUMS", "off")
    table = lance_core.write_dataset(pa.table({"x": range(5000)}), tmp_path / "t", max_rows_per_file=2500)
    report = table.verify(level="full")
    assert (report.is_ok, report.num_checked_files) == (True, 2)
    assert "2 files match their checksums" in str(report)
    path = min((tmp_path / "t" / "data").iterdir())
    data = bytearray(path.read_bytes())
    padding = data.index(b"HHHH")
    data[padding] ^= 1
    path.write_bytes(data)
    assert lance_core.dataset(tmp_path / "t").to_table().num_rows == 5000
    report = lance_core.dataset(tmp_path / "t").verify(level="full")
    (problem,) = report.problems
    assert (problem.kind, problem.path) == ("checksum", f"data/{path.name}")
    assert report.num_checked_files == 1
    assert lance_core.dataset(tmp_path / "t").verify().is_ok
