"""Fragments made, checked and thinned out by themselves, and what writes and versions tell: as pylance does it."""

import lance
import pyarrow as pa
import pytest
from lance.fragment import LanceFragment
from lance.progress import FragmentWriteProgress

import lance_core
from lance_core.errors import CorruptDataError, InvalidInputError, NotFoundError
from lance_core.methods.fragment_rows import FragmentSession

TABLE = pa.table({"a": range(10), "s": [{"x": one, "y": str(one)} for one in range(10)]})
TOOLS = pytest.mark.parametrize("tool", [lance, lance_core], ids=["pylance", "ours"])
OTHER = {lance: lance_core, lance_core: lance}


@pytest.fixture
def uri(tmp_path):
    lance.write_dataset(TABLE, tmp_path / "t", max_rows_per_file=6)
    return str(tmp_path / "t")


def outcome(fragment, work):
    """What is left of a fragment: None, or physical and deleted rows."""
    try:
        left = work(fragment)
    except ValueError:
        return "refused"
    file = left and left.deletion_file
    return left and (left.id, left.physical_rows, file and file.num_deleted_rows, [one.path for one in left.files])


@pytest.mark.parametrize(
    "work",
    [
        lambda one: one.delete("a < 2"),
        lambda one: one.delete("a > 100"),
        lambda one: one.delete("a < 100"),
        lambda one: one.delete_rows([0, 3, 3]),
        lambda one: one.delete_rows(range(6)),
        lambda one: one.delete_rows([]),
        lambda one: one.delete_rows([6]),
        lambda one: one.delete_rows([2]),
    ],
)
def test_rows_to_delete(uri, work):
    assert outcome(lance.dataset(uri).get_fragment(0), work) == outcome(lance_core.dataset(uri).get_fragment(0), work)
    lance.dataset(uri).delete("a in (0, 2)")
    assert outcome(lance.dataset(uri).get_fragment(0), work) == outcome(lance_core.dataset(uri).get_fragment(0), work)


def test_deleted_rows_are_committed(uri):
    fragments = lance_core.dataset(uri).get_fragments()
    left = [fragments[0].delete_rows([1, 2]), fragments[1].delete("a > 0")]
    operation = lance_core.LanceOperation.Delete([left[0]], [1], "by hand")
    lance_core.LanceDataset.commit(uri, operation, read_version=1)
    for tool in (lance, lance_core):
        assert tool.dataset(uri).to_table()["a"].to_pylist() == [0, 3, 4, 5]


@TOOLS
def test_created_fragments(uri, tool):
    kind = LanceFragment if tool is lance else lance_core.LanceFragment
    new = kind.create(uri, TABLE.slice(0, 2))
    assert (new.id, new.physical_rows) == (0, 2)
    assert kind.create(uri, TABLE, fragment_id=7).id == 7
    tool.LanceDataset.commit(uri, tool.LanceOperation.Append([new]), read_version=1)
    assert OTHER[tool].dataset(uri).count_rows() == 12
    with pytest.raises((ValueError, OSError)):
        kind.create(uri, TABLE.slice(0, 0))
    with pytest.raises((ValueError, OSError)):
        kind.create(uri, pa.table({"z": [1]}))


def test_fragment_of_a_file(uri):
    dataset = lance_core.dataset(uri)
    known = dataset.get_fragment(1).metadata
    found = lance_core.LanceFragment.create_from_file(known.files[0].path, dataset, 1)
    assert found == known
    with pytest.raises(NotFoundError):
        lance_core.LanceFragment.create_from_file("nothing.lance", dataset, 1)
    other = lance.write_dataset(pa.table({"a": ["text"]}), uri, mode="overwrite").get_fragments()[0]
    with pytest.raises(InvalidInputError, match="string"):
        lance_core.LanceFragment.create_from_file(other.data_files()[0].path, dataset, 1)


def test_sessions(uri):
    lance.dataset(uri).delete("a < 2")
    theirs, ours = (tool.dataset(uri).get_fragment(0) for tool in (lance, lance_core))
    assert isinstance(ours.open_session(), FragmentSession)
    assert ours.open_session().take([0, 3]) == theirs.open_session().take([0, 3])
    taken = [one.open_session(["a"], with_row_address=True).take([1, 2]) for one in (theirs, ours)]
    assert taken[0].to_pydict() == taken[1].to_pydict()


def test_validation(uri, tmp_path):
    lance.dataset(uri).delete("a = 1")
    fragment = lance_core.dataset(uri).get_fragment(0)
    fragment.validate()
    path = tmp_path / "t" / "data" / fragment.data_files()[0].path
    content = path.read_bytes()
    path.write_bytes(content + b"more")
    with pytest.raises(CorruptDataError, match="bytes"):
        lance_core.dataset(uri).get_fragment(0).validate()
    path.unlink()
    with pytest.raises(NotFoundError):
        lance_core.dataset(uri).get_fragment(0).validate()


class Progress(FragmentWriteProgress):
    def __init__(self):
        self.told = []

    def begin(self, fragment, **_):
        self.told.append(("begin", fragment.id, len(fragment.files)))

    def complete(self, fragment, **_):
        self.told.append(("complete", fragment.id, fragment.physical_rows))


def test_progress(tmp_path):
    """pylance 14.0.2 numbers no fragments, and forgets the last one."""
    theirs, ours = Progress(), Progress()
    lance.write_dataset(TABLE, tmp_path / "theirs", max_rows_per_file=6, progress=theirs)
    lance_core.write_dataset(TABLE, tmp_path / "ours", max_rows_per_file=6, progress=ours)
    assert theirs.told == [("begin", 0, 0), ("complete", 0, 6), ("begin", 0, 0)]
    assert ours.told == [("begin", 0, 0), ("complete", 0, 6), ("begin", 1, 0), ("complete", 1, 4)]


class Refusal(Progress):
    def complete(self, *_, **__):
        raise KeyboardInterrupt


def test_progress_that_ends_a_write(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        lance_core.write_dataset(TABLE, tmp_path / "t", max_rows_per_file=6, progress=Refusal())
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize("mode", ["append", "overwrite", "create"])
def test_transaction_of_fragments(uri, tmp_path, mode):
    place = str(tmp_path / "new") if mode == "create" else uri
    transaction = lance_core.write_fragments(TABLE, place, return_transaction=True, mode=mode)
    expected = lance.fragment.write_fragments(TABLE, place, return_transaction=True, mode=mode)
    assert type(transaction.operation).__name__ == type(expected.operation).__name__
    assert transaction.read_version == expected.read_version
    assert lance_core.LanceDataset.commit(place, transaction).count_rows() == (20 if mode == "append" else 10)


@pytest.mark.parametrize("options", [None, {}, {"interval": 3, "older_than_seconds": 86400}])
def test_automatic_clean_up(tmp_path, options):
    found = [
        tool.write_dataset(TABLE, tmp_path / tool.__name__, auto_cleanup_options=options).config() for tool in OTHER
    ]
    interval = "lance.auto_cleanup.interval"
    assert found[0].keys() == found[1].keys()
    assert found[0].get(interval) == found[1].get(interval)
    if options is not None:  # pylance understands ours
        lance.write_dataset(TABLE, tmp_path / "lance_core", mode="append")
        lance.dataset(tmp_path / "lance_core").optimize.disable_auto_cleanup()
    with pytest.raises(InvalidInputError, match="auto_cleanup_options"):
        lance_core.write_dataset(TABLE, tmp_path / "x", auto_cleanup_options={"interval": 0})


def test_bytes_of_fields_and_files_of_versions(uri):
    lance.dataset(uri).delete("a < 2")
    lance.dataset(uri).create_scalar_index("a", "BTREE")
    theirs, ours = (tool.dataset(uri) for tool in (lance, lance_core))
    pairs = [[(one.id, one.bytes_on_disk) for one in tool.stats.data_stats().fields] for tool in (theirs, ours)]
    assert pairs[0] == pairs[1]
    steps = []
    tables = [theirs.tracked_files().read_all(), ours.tracked_files(progress=lambda *one: steps.append(one)).read_all()]
    assert tables[0].schema == tables[1].schema
    rows = [sorted(map(str, table.to_pylist())) for table in tables]
    assert rows[0] == rows[1]
    assert steps == [(1, 3), (2, 3), (3, 3)]
    assert {one["version"] for one in ours.tracked_files(min_version=3).read_all().to_pylist()} == {3}


@TOOLS
def test_merges_into_base_paths(tmp_path, tool):
    base = tool.DatasetBasePath(str(tmp_path / "other"), name="o", is_dataset_root=True)
    keys = pa.table({"k": range(10), "v": range(10)})
    dataset = tool.write_dataset(keys, str(tmp_path / "t"), initial_bases=[base])
    merge = dataset.merge_insert("k").when_matched_update_all().when_not_matched_insert_all()
    merge.target_bases(["o"]).execute(pa.table({"k": [1, 20], "v": [5, 6]}))
    assert [file.base_id for one in dataset.get_fragments() for file in one.data_files()] == [None, 1]
    assert len(list((tmp_path / "other" / "data").iterdir())) == 1
    for other in (lance, lance_core):
        read = other.dataset(str(tmp_path / "t")).to_table().sort_by("k").to_pydict()
        assert read["v"] == [0, 5, *range(2, 10), 6]


def test_merges_that_do_not_fit_base_paths(tmp_path):
    base = lance_core.DatasetBasePath(str(tmp_path / "other"), name="o", is_dataset_root=True)
    dataset = lance_core.write_dataset(pa.table({"k": [1], "v": [1]}), tmp_path / "t", initial_bases=[base])
    merge = (
        dataset.merge_insert("k")
        .when_matched_fail()
        .when_not_matched_insert_all()
        .target_all_bases(include_primary=False)
    )
    text = merge.analyze_plan(pa.table({"k": [2], "v": [2]}))
    assert "num_inserted_rows=1" in text
    with pytest.raises(InvalidInputError):
        merge.execute(pa.table({"k": [1], "v": [2]}))
    assert not list((tmp_path / "other").rglob("*.lance")), "nothing is left behind"


def test_analyzed_plans(uri):
    scanner = lance_core.dataset(uri).scanner(filter="a > 3")
    assert "output_rows=6" in scanner.analyze_plan()
    assert "counted 6 rows" in scanner.analyze_plan(count_rows=True)
