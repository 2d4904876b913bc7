"""Names, arguments and results of pylance's public API that cost little: they are there, and mean the same."""

import contextlib
import datetime as dt
import json
import pickle

import lance
import lance.commit
import lance.dataset
import lance.fragment
import lance.optimize
import lance.schema
import lance.vector
import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from lance.dataset import LANCE_COMMIT_MESSAGE_KEY as THEIR_MESSAGE_KEY

import lance_core
import lance_core.commit
import lance_core.dataset
import lance_core.fragment
import lance_core.optimize
import lance_core.schema
import lance_core.vector
from lance_core.dataset import LANCE_COMMIT_MESSAGE_KEY
from lance_core.errors import (
    CommitConflictError,
    CommitOutcomeUnknownError,
    DatasetNotFoundError,
    InvalidInputError,
    RefAlreadyExistsError,
    RefNotFoundError,
    SchemaMismatchError,
    UnsupportedError,
    VersionNotFoundError,
)

BOTH = [lance, lance_core]
ROWS = pa.table({"id": [1, 2, 3], "s": pa.array([{"x": 1}, {"x": 2}, None])})


def unpickled(data):
    """What a test pickled itself."""
    return pickle.loads(data)  # noqa: S301 nobody else made it


@pytest.fixture
def uri(tmp_path):
    """A table of three fragments, of which the first rows are deleted."""
    for _ in range(3):
        lance_core.write_dataset(ROWS, tmp_path / "t", mode="append")
    lance_core.dataset(tmp_path / "t").delete("id = 1")
    return str(tmp_path / "t")


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("dataset", ["ColumnOrdering", "LanceOperation", "write_dataset", "Version", "DeleteResult", "Transaction"]),
        ("fragment", ["write_fragments", "FragmentMetadata", "DataFile", "DeletionFile", "FragmentSession"]),
        ("schema", ["LanceSchema", "json_to_schema", "schema_to_json"]),
        ("vector", ["vec_to_table"]),
        ("commit", ["CommitConflictError", "CommitLock"]),
    ],
)
def test_modules_have_the_names_that_programs_import(module, names):
    for name in names:
        scope = {}
        exec(f"from lance_core.{module} import {name}\nfrom lance.{module} import {name} as theirs", scope)  # noqa: S102
        assert scope[name] is not None


def test_commit_message_key_is_that_of_pylance(uri):
    assert LANCE_COMMIT_MESSAGE_KEY == THEIR_MESSAGE_KEY
    lance_core.write_dataset(ROWS, uri, mode="append", commit_message="hello")
    made = lance.dataset(uri).read_transaction(lance.dataset(uri).version)
    assert made.transaction_properties[LANCE_COMMIT_MESSAGE_KEY] == "hello"


# ------------------------------------------------------------------------------------------------------------- vectors


@pytest.mark.parametrize(
    ("data", "options"),
    [
        (np.arange(12.0).reshape(3, 4), {}),
        (np.arange(6, dtype=np.int32).reshape(2, 3), {"names": "v"}),
        ([[1, 2], [3, 4]], {"names": ["v"]}),
        ([np.array([1.0, 2.0]), [3.0, 4.0]], {"ndim": 2}),
        ({"a": [1.0, 2.0], "b": [3.0, 4.0]}, {}),
        ({1: np.ones(3), 2: np.zeros(3)}, {"names": ["key", "value"]}),
        ([[1.0, 2.0, 3.0], [4.0]], {"ndim": 2, "check_ndim": False}),
    ],
)
def test_vec_to_table_makes_the_table_that_pylance_makes(data, options):
    if options.get("check_ndim") is False:  # pylance refuses vectors of other lengths in any case
        assert lance_core.vector.vec_to_table(data, **options).num_rows == 2
        return
    expected = lance.vector.vec_to_table(data, **options)
    assert lance_core.vector.vec_to_table(data, **options).equals(expected, check_metadata=True)


@pytest.mark.parametrize(
    ("data", "options"),
    [
        ([[1.0, 2.0], [3.0]], {}),
        ([], {}),
        ({}, {}),
        (np.ones(3), {}),
        (np.ones((2, 3)), {"ndim": 4}),
        (np.ones((2, 3)), {"ndim": 4, "check_ndim": False}),
        (np.ones((2, 3)), {"names": ["a", "b"]}),
        ({"a": [1.0]}, {"names": "v"}),
    ],
)
def test_vec_to_table_refuses_what_is_no_table_of_vectors(data, options):
    with pytest.raises(InvalidInputError):
        lance_core.vector.vec_to_table(data, **options)


# ------------------------------------------------------------------------------------------------------------- schemas


def described(field):
    return (field.name(), field.id(), field.to_arrow(), [described(child) for child in field.children()])


def test_lance_schema_tells_what_pylance_tells(uri):
    ours, theirs = lance_core.dataset(uri).lance_schema, lance.dataset(uri).lance_schema
    assert [described(one) for one in ours.fields()] == [described(one) for one in theirs.fields()]
    assert ours.to_pyarrow() == theirs.to_pyarrow()
    assert ours.field("s.x").id() == theirs.field("s.x").id()
    assert ours.field("S.X") is theirs.field("S.X") is None
    assert ours.field_case_insensitive("S.X").id() == theirs.field_case_insensitive("S.X").id()
    assert ours.field("nope") is theirs.field("nope") is None
    assert unpickled(pickle.dumps(ours)) == ours


def test_lance_schema_from_pyarrow_numbers_fields_like_pylance():
    key = {"lance-schema:unenforced-primary-key": "true"}
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False, metadata=key), pa.field("l", pa.list_(pa.int8()))])
    ours, theirs = (one.from_pyarrow(schema) for one in (lance_core.LanceSchema, lance.schema.LanceSchema))
    assert [described(one) for one in ours.fields()] == [described(one) for one in theirs.fields()]
    assert [one.name() for one in ours.unenforced_primary_key()] == ["a"]
    assert [one.name() for one in theirs.unenforced_primary_key()] == ["a"]
    assert ours.fields()[0].is_unenforced_primary_key()
    assert theirs.fields()[0].is_unenforced_primary_key()
    assert ours.fields()[0].unenforced_primary_key_position() == theirs.fields()[0].unenforced_primary_key_position()
    assert ours.fields()[0].metadata == theirs.fields()[0].metadata


JSON_FIELDS = [
    pa.field("a", pa.int64(), nullable=False, metadata={"k": "v"}),
    pa.field("b", pa.list_(pa.string())),
    pa.field("c", pa.struct([pa.field("x", pa.float32())])),
    pa.field("d", pa.list_(pa.float32(), 3)),
    pa.field("e", pa.timestamp("us", "UTC")),
    pa.field("f", pa.decimal128(10, 2)),
    pa.field("g", pa.dictionary(pa.int32(), pa.string())),
    pa.field("h", pa.binary(4)),
    pa.field("i", pa.large_list(pa.int8())),
    pa.field("j", pa.list_(pa.struct([pa.field("y", pa.uint16())]), 2)),
    pa.field("k", pa.time64("ns")),
    pa.field("l", pa.null()),
]


def test_schemas_have_the_json_of_pylance_and_come_back():
    schema = pa.schema(JSON_FIELDS, metadata={"m": "n"})
    made = lance_core.schema.schema_to_json(schema)
    assert made == lance.schema.schema_to_json(schema)
    assert lance_core.schema.json_to_schema(json.loads(json.dumps(made))).equals(schema, check_metadata=True)
    with pytest.raises(UnsupportedError, match="'m'"):
        lance_core.schema.schema_to_json(pa.schema([pa.field("m", pa.map_(pa.string(), pa.int8()))]))
    with pytest.raises(InvalidInputError, match="cannot read the JSON"):
        lance_core.schema.json_to_schema({"columns": []})


# ------------------------------------------------------------------------------------------------------- data to write


def hugging_face(table):
    """What lance_core uses of ``datasets.Dataset``, with rows that were selected in another order."""

    class Features:
        arrow_schema = table.schema

    class Dataset:
        features = Features()
        order = tuple(reversed(range(table.num_rows)))

        def with_format(self, name):
            assert name == "arrow"
            return self

        def iter(self, batch_size):
            for start in range(0, len(self.order), batch_size):
                yield table.take(self.order[start : start + batch_size])

    Dataset.__module__ = "datasets.arrow_dataset"
    return Dataset()


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda _: ROWS.to_pydict(), [1, 2, 3]),
        (lambda _: {"id": np.arange(2)}, [0, 1]),
        (lambda _: ds.dataset(ROWS).scanner(filter=ds.field("id") > 1), [2, 3]),
        (lambda uri: lance_core.dataset(uri).scanner(filter="id > 2"), [3, 3, 3]),
        (lambda uri: lance.dataset(uri).scanner(filter="id > 2"), [3, 3, 3]),
        (lambda _: hugging_face(ROWS), [3, 2, 1]),
    ],
    ids=["dict", "arrays", "scanner", "ours", "theirs", "hugging-face"],
)
def test_forms_of_data_that_can_be_written(uri, tmp_path, make, expected):
    made = lance_core.write_dataset(make(uri), tmp_path / "new")
    assert made.to_table(columns=["id"])["id"].to_pylist() == expected


def test_dict_is_converted_to_the_schema_and_refused_if_it_is_no_table(tmp_path):
    schema = pa.schema({"a": pa.int8()})
    assert lance_core.write_dataset({"a": [1]}, tmp_path / "a", schema=schema).schema == schema
    for data in ({"a": [1], "b": [1, 2]}, {"a": 1}):
        with pytest.raises(InvalidInputError):
            lance_core.write_dataset(data, tmp_path / "b")
    with pytest.raises(InvalidInputError):
        lance_core.write_dataset({"a": [1]}, tmp_path / "b", schema=pa.schema({"a": pa.int8(), "c": pa.int8()}))


def test_data_set_with_splits_is_refused(tmp_path):
    class DatasetDict(dict):
        pass

    DatasetDict.__module__ = "datasets.dataset_dict"
    with pytest.raises(InvalidInputError, match="more than one split"):
        lance_core.write_dataset(DatasetDict(train=hugging_face(ROWS)), tmp_path / "a")


# -------------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("kind", "ask"),
    [
        (DatasetNotFoundError, lambda m, uri: m.dataset(uri + "x")),
        (VersionNotFoundError, lambda m, uri: m.dataset(uri, version=99)),
        (RefNotFoundError, lambda m, uri: m.dataset(uri, version="nope")),
        (RefNotFoundError, lambda m, uri: m.dataset(uri).tags.delete("nope")),
        (RefAlreadyExistsError, lambda m, uri: [m.dataset(uri).tags.create("twice", 1) for _ in range(2)]),
        (SchemaMismatchError, lambda m, uri: m.write_dataset(pa.table({"q": [1]}), uri, mode="append")),
        (SchemaMismatchError, lambda m, uri: m.write_dataset(pa.table({"id": ["x"]}), uri, mode="append")),
    ],
)
def test_errors_are_of_the_builtin_class_that_pylance_raises(uri, kind, ask):
    with pytest.raises(kind) as ours:
        ask(lance_core, uri)
    if kind is RefAlreadyExistsError:
        lance_core.dataset(uri).tags.delete("twice")
    with pytest.raises((ValueError, OSError)) as theirs:
        ask(lance, uri)
    assert isinstance(ours.value, ValueError if isinstance(theirs.value, ValueError) else OSError)
    again = unpickled(pickle.dumps(ours.value))
    assert type(again) is kind
    assert str(again) == str(ours.value)


def test_commit_conflicts_are_os_errors_that_tell_whether_to_retry(uri):
    first, second = lance_core.dataset(uri), lance_core.dataset(uri)
    first.update({"id": "id + 1"})
    with pytest.raises(CommitConflictError) as caught:
        second.update({"id": "id + 1"}, conflict_retries=0)
    assert isinstance(caught.value, OSError)
    assert caught.value.retryable is caught.value.is_retryable is True
    assert issubclass(lance.commit.CommitConflictError, OSError)
    assert lance_core.commit.CommitConflictError is CommitConflictError


# ------------------------------------------------------------------------------------------------------------- reading


@pytest.mark.parametrize(
    "options",
    [
        {"columns": ["id", "_rowoffset"]},
        {"columns": ["_rowoffset"]},
        {"columns": ["_rowoffset", "id"], "filter": "id > 2"},
        {"columns": ["id", "_rowoffset"], "limit": 2, "offset": 2},
        {"columns": ["id"], "filter": "_rowoffset = 3"},
        {"columns": ["id", "_rowoffset"], "include_deleted_rows": True, "with_row_id": True},
    ],
    ids=str,
)
def test_row_offsets_are_places_among_the_live_rows(uri, options):
    expected = lance.dataset(uri).to_table(**options).to_pydict()
    assert lance_core.dataset(uri).to_table(**options).to_pydict() == expected


def test_row_offsets_of_takes_and_of_some_fragments(uri):
    ours, theirs = lance_core.dataset(uri), lance.dataset(uri)
    columns = ["_rowoffset", "id"]
    assert ours.take([3, 0], columns).to_pydict() == theirs.take([3, 0], columns).to_pydict()
    expected = theirs.get_fragments()[1].to_table(columns=columns).to_pydict()
    assert ours.get_fragments()[1].to_table(columns=columns).to_pydict() == expected
    some = ours.scanner(columns=columns, fragments=ours.get_fragments()[1:]).to_table()
    assert (
        some.to_pydict() == theirs.scanner(columns=columns, fragments=theirs.get_fragments()[1:]).to_table().to_pydict()
    )
    assert ours.count_rows("_rowoffset > 3") == 2
    with pytest.raises(UnsupportedError, match="_rowoffset"):
        ours.update({"id": "9"}, where="_rowoffset = 3")
    ours.delete("_rowoffset = 3")
    assert ours.to_table(columns=["id"])["id"].to_pylist() == [2, 3, 2, 2, 3]


def test_default_scan_options_count_where_a_scan_does_not_say(uri):
    defaults = {"columns": ["id"], "limit": 1, "with_row_id": True}
    for module in BOTH:
        table = module.dataset(uri, default_scan_options=defaults)
        assert table.to_table().column_names == ["id", "_rowid"]
        assert table.to_table(with_row_id=False).column_names == ["id"]
        assert table.head(3).num_rows == 3
        assert table.checkout_version(1).to_table().num_rows == 1
        assert table.take([0]).column_names == ["id", "s"]
        assert table.count_rows() == 6
        assert table.get_fragments()[0].to_table().column_names == ["id", "s"]
        with pytest.raises(ValueError, match="nonsense"):
            module.dataset(uri, default_scan_options={"nonsense": 1}).to_table()
    assert unpickled(pickle.dumps(table)).to_table().num_rows == 1


def test_version_timestamps_are_those_of_pylance(uri):
    ours, theirs = lance_core.dataset(uri), lance.dataset(uri)
    stamps = [[one["timestamp"] for one in table.versions()] for table in (ours, theirs)]
    rounding = dt.timedelta(microseconds=1)  # pylance computes them as floating-point numbers
    assert all(abs(mine - other) <= rounding for mine, other in zip(*stamps, strict=True))
    assert {**ours.get_version(), "timestamp": 0} == {**theirs.get_version(), "timestamp": 0}
    assert ours.get_version()["timestamp"] == stamps[0][-1]
    assert all(one.tzinfo is None for one in stamps[0])
    now = dt.datetime.now()  # noqa: DTZ005 what pylance and users compare with
    assert abs(now - stamps[0][-1]) < dt.timedelta(minutes=10)


def test_sessions_are_accepted(uri):
    session = lance_core.Session()
    table = lance_core.dataset(uri, session=session)
    assert table.session() is session
    assert table.checkout_version(1).session().is_same_as(session)
    assert lance_core.write_dataset(ROWS, uri, mode="append", session=session).session() is session
    assert lance_core.dataset(uri).session().size_bytes() == 0


# ------------------------------------------------------------------------------------------------------------- changes


class Lock:
    """Remembers for which versions it was held."""

    def __init__(self, fails=""):
        self.held, self.fails = [], fails

    @contextlib.contextmanager
    def __call__(self, version):
        if self.fails == "before":
            raise RuntimeError("no lock")
        yield
        self.held.append(version)
        if self.fails == "behind":
            raise RuntimeError("lost the lock")


def test_commit_lock_is_held_for_each_version(uri):
    for module in BOTH:
        lock = Lock()
        first = module.dataset(uri).version
        module.write_dataset(ROWS, uri, mode="append", commit_lock=lock)
        module.dataset(uri, commit_lock=lock).delete("id = 3")
        fragments = module.fragment.write_fragments(ROWS, uri)
        append = module.LanceOperation.Append(fragments)
        module.LanceDataset.commit(uri, append, read_version=first + 2, commit_lock=lock)
        assert lock.held == [first + 1, first + 2, first + 3]


def test_commit_lock_that_fails_commits_nothing_or_says_that_it_may_have(uri):
    before = lance_core.dataset(uri).version
    with pytest.raises(RuntimeError, match="no lock"):
        lance_core.write_dataset(ROWS, uri, mode="append", commit_lock=Lock("before"))
    assert lance_core.dataset(uri).version == before
    with pytest.raises(CommitOutcomeUnknownError):
        lance_core.write_dataset(ROWS, uri, mode="append", commit_lock=Lock("behind"))
    table = lance_core.dataset(uri)
    assert table.version == before + 1
    assert table.to_table().num_rows == table.count_rows() == 9


def test_max_page_bytes_makes_smaller_pages(tmp_path):
    values = pa.table({"a": np.random.default_rng(1).random(100_000)})
    sizes = {}
    for limit in (None, 100_000):
        table = lance_core.write_dataset(values, tmp_path / str(limit), max_page_bytes=limit)
        (path,) = (tmp_path / str(limit) / "data").iterdir()
        sizes[limit] = len(lance_core.file.LanceFileReader(path).metadata().columns[0].pages)
        assert lance.dataset(table.uri).to_table() == values
    assert sizes[None] == 1
    assert sizes[100_000] >= 8
    with pytest.raises(InvalidInputError, match="max_page_bytes"):
        lance_core.write_dataset(values, tmp_path / "no", max_page_bytes=0)


def test_merges_of_batches(uri):
    news = pa.table({"id": [3, 9], "s": pa.array([{"x": 5}, {"x": 6}])})
    table = lance_core.dataset(uri)
    build = table.merge_insert("id").when_not_matched_insert_all
    _, stats = build().execute_uncommitted_batches(news.to_reader())
    assert stats["num_inserted_rows"] == 1
    assert "num_inserted_rows=1" in build().analyze_plan_batches(news.to_reader())
    expected = lance.dataset(uri).merge_insert("id").when_not_matched_insert_all()
    expected = expected.execute_uncommitted_batches(news.to_reader())[1].keys()
    found = build().execute_batches(news.to_reader())
    assert found.keys() == expected
    assert (found["num_inserted_rows"], lance.dataset(uri).count_rows()) == (1, 7)


def test_deletion_files_tell_what_those_of_pylance_tell(uri):
    theirs, ours = (module.dataset(uri).get_fragments()[0].metadata.deletion_file for module in BOTH)
    assert ours.file_type == theirs.file_type == "array"
    assert ours.asdict() == theirs.asdict()
    assert json.loads(ours.json()) == json.loads(theirs.json())
    assert ours.path(0) == theirs.path(0)
    assert type(ours).from_json(theirs.json()) == ours
    assert type(theirs).from_json(ours.json()).asdict() == theirs.asdict()
    with pytest.raises(InvalidInputError):
        type(ours).from_json("{}")


def test_compaction_plans_have_json(uri):
    table = lance_core.dataset(uri)
    plan = lance_core.optimize.Compaction.plan(table)
    again = lance_core.optimize.CompactionPlan.from_json(plan.json())
    assert again == plan
    results = [lance_core.optimize.CompactionTask.from_json(task.json()).execute(table) for task in again.tasks]
    lance_core.optimize.Compaction.commit(table, results)
    assert lance.dataset(uri).to_table(columns=["id"]).num_rows == 6
    for kind in ("CompactionPlan", "CompactionTask", "RewriteResult"):
        with pytest.raises(ValueError, match=kind):
            getattr(lance_core.optimize, kind).from_json("{}")


# ------------------------------------------------------------------------------------------------------------- Project


def test_project_takes_an_arrow_schema_and_finds_fields_by_name(uri):
    table = lance_core.dataset(uri)
    project = lance_core.LanceOperation.Project(pa.schema([pa.field("s", pa.struct([pa.field("x", pa.int64())]))]))
    done = lance_core.LanceDataset.commit(uri, project, read_version=table.version)
    assert done.to_table() == table.to_table(columns=["s"])
    assert lance.dataset(uri).to_table() == table.to_table(columns=["s"])


@pytest.mark.parametrize(
    "schema",
    [pa.schema({"nope": pa.int64()}), pa.schema({"id": pa.string()}), pa.schema({"s": pa.struct({"y": pa.int64()})})],
    ids=str,
)
def test_project_refuses_fields_that_the_table_lacks(uri, schema):
    table = lance_core.dataset(uri)
    with pytest.raises(InvalidInputError):
        lance_core.LanceDataset.commit(uri, lance_core.LanceOperation.Project(schema), read_version=table.version)
    assert lance_core.dataset(uri).version == table.version


def test_operations_take_lance_schemas_and_refuse_what_is_none(uri):
    table = lance_core.dataset(uri)
    schema = lance_core.LanceSchema(table.lance_schema.inner.select(["id"]))
    done = lance_core.LanceDataset.commit(uri, lance_core.LanceOperation.Project(schema), read_version=table.version)
    assert done.to_table() == table.to_table(columns=["id"])
    with pytest.raises(InvalidInputError, match=r"LanceSchema or pyarrow\.Schema"):
        lance_core.LanceDataset.commit(uri, lance_core.LanceOperation.Project({"a": 1}), read_version=done.version)
