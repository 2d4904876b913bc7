"""Write modes and schema modes against a model of the rows; settings of a run; what is refused before a write."""

from datetime import UTC, date, datetime
from unittest.mock import Mock

import dagster as dg
import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import InvalidInputError, RefAlreadyExistsError
from lance_dagster import LanceIOManager

DAYS = dg.DailyPartitionsDefinition("2026-11-01", end_date="2026-11-08")
NEW_YORK = dg.DailyPartitionsDefinition("2026-03-05", end_date="2026-03-12", timezone="America/New_York")
NUMBERS = dg.StaticPartitionsDefinition([str(n) for n in range(1, 8)])
LETTERS = dg.StaticPartitionsDefinition(list("abcdefg"))
GRID = dg.MultiPartitionsDefinition({"day": DAYS, "letter": LETTERS})


def noon(key):
    return datetime.fromisoformat(key).replace(hour=12, tzinfo=UTC)


# name -> (partitions, partition_expr, key -> values of the columns that hold it)
LAYOUTS = {
    "string": (LETTERS, "part", lambda key: {"part": key}),
    "int": (NUMBERS, "part", lambda key: {"part": int(key)}),
    "date": (DAYS, "part", lambda key: {"part": date.fromisoformat(key)}),
    "timestamp": (DAYS, "part", lambda key: {"part": datetime.fromisoformat(key)}),
    "new_york": (NEW_YORK, "part", lambda key: {"part": noon(key)}),
    "expression": (DAYS, "date(part)", lambda key: {"part": noon(key)}),
    "computed": (NUMBERS, "part % 10", lambda key: {"part": 70 + int(key)}),
    "grid": (
        GRID,
        {"day": "date(part)", "letter": "letter"},
        lambda key: {"part": noon(key.split("|")[0]), "letter": key.split("|")[1]},
    ),
}


def keys_of(layout):
    if layout[0] is GRID:
        return [f"{day}|{letter}" for day in DAYS.get_partition_keys()[:2] for letter in "abc"]
    return layout[0].get_partition_keys()[:6]


# Places in the list of keys: one, neighbours, some apart, all. With the grid these are sets that are no product.
CHOICES = [(1,), (1, 2, 3), (0, 2, 4, 5), (0, 1, 2, 3, 4, 5)]


def context_of(keys, layout, metadata, run_id):
    """Of a step that writes any set of partition keys."""
    context = Mock(spec=dg.OutputContext)
    context.configure_mock(
        has_asset_key=True,
        asset_key=dg.AssetKey("asset"),
        has_asset_partitions=True,
        asset_partitions_def=layout[0],
        asset_partition_keys=keys,
        definition_metadata={"partition_expr": layout[1], **metadata},
        output_metadata={},
        run_id=run_id,
        step_key="asset",
        step_context=None,
        asset_spec=dg.AssetSpec("asset"),
    )
    return context


def frame(layout, rows):
    """Rows (id, key, stamp) as a table."""
    return pa.Table.from_pylist([{"id": i, "key": key, "stamp": stamp, **layout[2](key)} for i, key, stamp in rows])


def replaced(before, keys, new):
    return [row for row in before if row[1] not in keys] + new


def appended(before, keys, new):  # noqa: ARG001 - as the others
    return before + new


def merged(before, keys, new):
    by_id, old = {row[0]: row for row in new}, {row[0] for row in before if row[1] in keys}
    changed = [by_id.get(row[0], row) if row[1] in keys else row for row in before]
    return changed + [row for row in new if row[0] not in old]


MODELS = {"replace_partitions": replaced, "append": appended, "merge": merged}


@pytest.mark.parametrize("mode", MODELS)
@pytest.mark.parametrize("name", LAYOUTS)
def test_modes_and_keys_against_a_model(root, tables, mode, name):
    layout, manager, rows = LAYOUTS[name], LanceIOManager(root=root, tag_runs=False), []
    keys = keys_of(layout)
    for step, chosen in enumerate([tuple(range(6)), *CHOICES]):
        wanted = [keys[i] for i in chosen]
        # One id of each partition is one of another's, so that a merge which looked elsewhere would be found out.
        far = 0 if step == 0 else 3
        new = [(n, keys[i], step) for i in chosen for n in (3 * i, 3 * i + 1, 3 * ((i + far) % 6) + 2)]
        metadata = {"mode": mode, "merge_keys": ["id"]}
        context = context_of(wanted[::-1], layout, metadata, run_id=f"{step:032x}")
        manager.handle_output(context, frame(layout, new))
        rows = new if step == 0 else MODELS[mode](rows, wanted, new)
        found = tables.dataset("asset").to_table(columns=["id", "key", "stamp"]).to_pylist()
        assert sorted(tuple(row.values()) for row in found) == sorted(rows)
        assert tables.dataset("asset").version == step + 1


def asset_of(value, *, name="asset", **kwargs):
    @dg.asset(name=name, **kwargs)
    def asset():
        return value() if callable(value) else value

    return asset


def merging(rows, **metadata):
    return asset_of(pa.Table.from_pylist(rows), metadata={"mode": "merge", **metadata})


def test_a_merge_updates_and_inserts(run, tables, metadata_of):
    run(merging([{"id": 1, "a": "x"}, {"id": 2, "a": "y"}], primary_key=["id"]))
    result = run(merging([{"id": 2, "a": "Y"}, {"id": 3, "a": "Z"}], merge_keys="id"))
    found = {row["id"]: row["a"] for row in tables.dataset("asset").to_table().to_pylist()}
    assert found == {1: "x", 2: "Y", 3: "Z"}
    metadata = metadata_of(result)
    assert (metadata["lance/operation"], metadata["dagster/row_count"]) == ("merge", 3)
    assert (metadata["lance/rows_written"], metadata["lance/rows_deleted"]) == (2, 1)
    assert metadata["lance/commit_retries"] == 0


def test_merge_keys_of_the_manager(run, tables, root):
    manager = LanceIOManager(root=root, mode="merge", merge_keys=["id"])
    for value in ("x", "y"):
        run(asset_of(pa.table({"id": [1], "a": [value]})), manager=manager)
    assert tables.dataset("asset").to_table().to_pylist() == [{"id": 1, "a": "y"}]


def test_the_primary_key_of_the_table(run, tables):
    mark = {"lance-schema:unenforced-primary-key": "true"}
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False, metadata=mark), pa.field("a", pa.string())])
    for value in ("x", "y"):
        run(asset_of(pa.table({"id": [1], "a": [value]}, schema=schema), metadata={"mode": "merge"}))
    assert tables.dataset("asset").to_table().to_pylist() == [{"id": 1, "a": "y"}]


REFUSED = {
    "no keys": ({"mode": "merge"}, {"id": [1], "a": ["x"]}, "needs the metadata .merge_keys."),
    "unknown key": ({"mode": "merge", "merge_keys": ["nope"]}, {"id": [1], "a": ["x"]}, "nope"),
    "type": ({"mode": "append"}, {"id": ["one"], "a": ["x"]}, "'id' is string in the data and int64 in the table"),
    "two types": ({"mode": "append"}, {"id": ["1"], "a": [True]}, "'id' is .*'a' is"),
    "missing": ({"mode": "append"}, {"id": [1]}, "missing \\['a'\\]"),
    "extra": ({"mode": "append"}, {"id": [1], "a": ["x"], "b": [1]}, "extra \\['b'\\]"),
    "strict overwrite": ({"schema_mode": "strict"}, {"id": [1]}, "missing \\['a'\\]"),
    "schema mode": ({"schema_mode": "widen"}, {"id": [1]}, "schema_mode is one of"),
    "mode": ({"mode": "upsert"}, {"id": [1]}, "mode is one of"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_before_anything_is_written(run, tables, name):
    metadata, columns, message = REFUSED[name]
    run(asset_of(pa.table({"id": [0], "a": ["w"]})))
    for value in (lambda: pa.table(columns), lambda: pa.table(columns).to_reader()):
        with pytest.raises(InvalidInputError, match=message) as caught:
            run(asset_of(value, metadata=metadata))
        assert "Storing asset" in str(caught.value)
    assert tables.dataset("asset").version == 1


@pytest.mark.parametrize("expr", ["nope", "date(nope)", "date(", None, {"x": "part", "y": "part"}])
def test_partition_columns_that_are_not_there(run, tables, expr):
    asset = asset_of(
        pa.table({"part": ["a"]}), partitions_def=LETTERS, metadata={"partition_expr": expr} if expr else {}
    )
    with pytest.raises(InvalidInputError, match="partition") as caught:
        run(asset, partition_key="a")
    assert "Storing asset [a]" in str(caught.value)
    assert not tables.exists("asset")


def test_days_in_utc_are_no_days_elsewhere(run):
    asset = asset_of(
        pa.table({"at": [noon("2026-03-06")]}), partitions_def=NEW_YORK, metadata={"partition_expr": "date(at)"}
    )
    with pytest.raises(InvalidInputError, match="America/New_York"):
        run(asset, partition_key="2026-03-06")


@pytest.mark.parametrize("mode", ["append", "merge", "overwrite"])
def test_new_columns_are_added(run, tables, mode):
    metadata = {"mode": mode, "merge_keys": ["id"], "schema_mode": "add"}
    run(asset_of(pa.table({"id": [1, 2], "a": ["x", "y"]})))
    run(asset_of(pa.table({"b": [True], "id": [2]}), metadata=metadata))
    found = sorted(tables.dataset("asset").to_table().to_pylist(), key=lambda row: (row["id"], str(row["a"])))
    old, new = {"id": 1, "a": "x", "b": None}, {"id": 2, "a": None, "b": True}
    expected = {
        "append": [old, new, {"id": 2, "a": "y", "b": None}],
        "merge": [old, {"id": 2, "a": "y", "b": True}],  # what the source does not tell stays
        "overwrite": [new],
    }
    assert found == expected[mode]


def test_columns_are_added_for_a_partition(run, tables):
    def letters(columns, **metadata):
        return asset_of(
            pa.table(columns),
            partitions_def=LETTERS,
            metadata={"partition_expr": "part", "schema_mode": "add", **metadata},
        )

    run(letters({"part": ["a"], "n": [1]}), partition_key="a")
    run(letters({"part": ["b"], "n": [2], "more": ["x"]}), partition_key="b")
    rows = tables.dataset("asset").to_table().to_pylist()
    assert rows == [{"part": "a", "n": 1, "more": None}, {"part": "b", "n": 2, "more": "x"}]


def test_a_partition_may_change_the_columns_of_the_table(run, tables):
    def letters(part, columns, **metadata):
        table = pa.table({"part": [part], **columns})
        return asset_of(table, partitions_def=LETTERS, metadata={"partition_expr": "part", **metadata})

    run(letters("a", {"n": pa.array([1], pa.int32()), "old": [1]}), partition_key="a")
    run(letters("b", {"n": pa.array([2], pa.int64()), "new": ["x"]}, schema_mode="overwrite"), partition_key="b")
    dataset = tables.dataset("asset")
    assert dataset.schema.field("n").type == pa.int64()
    assert dataset.to_table().to_pylist() == [{"part": "a", "n": 1, "new": None}, {"part": "b", "n": 2, "new": "x"}]


def test_adding_columns_twice_is_adding_them_once(run, tables, monkeypatch):
    """The columns are there, the rows are not: the retry adds the rows."""
    run(asset_of(pa.table({"id": [1]})))
    original, calls = lance_core.write_dataset, []

    def failing(*args, **kwargs):
        calls.append(1)
        if len(calls) == 1:
            message = "died before the commit"
            raise RuntimeError(message)
        return original(*args, **kwargs)

    monkeypatch.setattr(lance_core, "write_dataset", failing)
    metadata = {"mode": "append", "schema_mode": "add"}
    policy = dg.RetryPolicy(max_retries=1)
    assert run(asset_of(pa.table({"id": [2], "b": [True]}), metadata=metadata, retry_policy=policy)).success
    assert tables.dataset("asset").to_table().to_pylist() == [{"id": 1, "b": None}, {"id": 2, "b": True}]


def test_a_run_may_choose_by_its_tags(root, instance, tables):
    asset = asset_of(pa.table({"id": [1]}), metadata={"mode": "error"})
    resources = {"io_manager": LanceIOManager(root=root)}
    for _ in range(2):
        dg.materialize([asset], instance=instance, resources=resources, tags={"lance/mode": "append"})
    assert tables.dataset("asset").count_rows() == 2


def test_a_run_may_choose_by_its_config(root, tables):
    asset = asset_of(pa.table({"id": [1]}))
    resources = {"io_manager": LanceIOManager.configure_at_launch(root=root)}
    config = {"resources": {"io_manager": {"config": {"mode": "append", "root": root}}}}
    for _ in range(2):
        dg.materialize([asset], resources=resources, run_config=config)
    assert tables.dataset("asset").count_rows() == 2


def test_tags_of_a_template(run, root, tables):
    manager = LanceIOManager(root=root, tag_template="{asset}/{partition}: {short_run_id}")
    asset = asset_of(pa.table({"part": ["a"]}), partitions_def=LETTERS, metadata={"partition_expr": "part"})
    result = run(asset, partition_key="a", manager=manager)
    assert tables.tags("asset") == {f"asset-a-{result.run_id[:8]}": 1}


def test_a_tag_that_exists_stops_the_run_before_it_writes(run, root, tables):
    manager = LanceIOManager(root=root, tag_template="release")
    run(asset_of(pa.table({"a": [1]})), manager=manager)
    with pytest.raises(RefAlreadyExistsError, match="'release' exists already"):
        run(asset_of(pa.table({"a": [2]})), manager=manager)
    assert tables.dataset("asset").version == 1


@pytest.mark.parametrize("template", ["{nope}", "{", "..."])
def test_templates_that_make_no_tag(run, root, template):
    with pytest.raises(InvalidInputError, match="template"):
        run(asset_of(pa.table({"a": [1]})), manager=LanceIOManager(root=root, tag_template=template))


def test_a_branch_is_written_beside_the_table(run, root, tables, metadata_of):
    run(asset_of(pa.table({"a": [1]})))
    seen = []

    @dg.asset
    def down(asset: pa.Table) -> None:
        seen.append(asset["a"].to_pylist())

    audited = LanceIOManager(root=root, branch="audit")
    result = run(asset_of(pa.table({"a": [2]}), metadata={"mode": "append"}), down, manager=audited)
    assert tables.dataset("asset").to_table()["a"].to_pylist() == [1]
    assert seen == [[1, 2]]
    assert metadata_of(result)["lance/branch"] == "audit"
    (event,) = result.asset_materializations_for_node("asset")
    assert event.tags["dagster/data_version"] == f"audit@{metadata_of(result)['lance/version']}"

    @dg.asset(name="down", ins={"asset": dg.AssetIn(metadata={"branch": "audit", "filter": "a > 1"})})
    def of_branch(asset: pa.Table) -> None:
        seen.append(asset["a"].to_pylist())

    spec = dg.AssetSpec("asset").with_io_manager_key("io_manager")
    dg.materialize([spec, of_branch], selection=[of_branch], resources={"io_manager": LanceIOManager(root=root)})
    assert seen[1:] == [[2]]


def test_a_branch_can_be_written_before_its_table(run, tables):
    run(asset_of(pa.table({"a": [1]}), metadata={"branch": "audit"}))
    assert tables.dataset("asset", branch="audit").count_rows() == 1
    assert not tables.exists("asset")


def test_a_table_is_written_by_the_compression_profile_of_its_asset(tmp_path):
    @dg.asset(metadata={"lance/compression_profile": "small"})
    def numbers():
        return pa.table({"n": [1, 2]})

    manager = LanceIOManager(root=str(tmp_path))
    for tags in ({}, {"lance/mode": "append"}):
        assert dg.materialize([numbers], resources={"io_manager": manager}, tags=tags).success
    dataset = lance_core.dataset(f"{tmp_path}/numbers.lance")
    assert (dataset.count_rows(), dataset.schema.metadata) == (4, {b"lance-encoding:compression-profile": b"small"})
