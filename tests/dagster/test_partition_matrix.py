"""Every shape of partition keys, against every type of partition column: what is written, what stays, what is read."""

from datetime import UTC, date, datetime

import dagster as dg
import pyarrow as pa
import pytest

from lance_dagster import LanceIOManager

DAYS = dg.DailyPartitionsDefinition("2026-11-01", end_date="2026-11-08")
DAY_KEYS = DAYS.get_partition_keys()
NEW_YORK = dg.DailyPartitionsDefinition("2026-03-05", end_date="2026-03-12", timezone="America/New_York")
NUMBERS = dg.StaticPartitionsDefinition([str(n) for n in range(1, 8)])
TRUTH = dg.StaticPartitionsDefinition(["false", "true"])


def day(key):
    return date.fromisoformat(key)


def midnight(key):
    return datetime.fromisoformat(key)


def noon_utc(key):
    return datetime.fromisoformat(key).replace(hour=12, tzinfo=UTC)


# column type -> (partitions, key -> a value in that partition)
COLUMNS = {
    "string": (pa.string(), DAYS, str),
    "large_string": (pa.large_string(), DAYS, str),
    "int64": (pa.int64(), NUMBERS, int),
    "int8": (pa.int8(), NUMBERS, int),
    "date32": (pa.date32(), DAYS, day),
    "static_date32": (pa.date32(), dg.StaticPartitionsDefinition(DAY_KEYS), day),
    "timestamp_us": (pa.timestamp("us"), DAYS, midnight),
    "timestamp_utc": (pa.timestamp("us", "UTC"), DAYS, noon_utc),
    "timestamp_new_york": (pa.timestamp("us", "UTC"), NEW_YORK, noon_utc),
}


@pytest.fixture(scope="module", params=COLUMNS)
def column(request):
    return COLUMNS[request.param]


def make_asset(column, *, rows=2, **metadata):
    """Writes ``rows`` rows per key of the run, marked with the ``stamp`` of the moment."""
    type_, definition, value = column
    stamp = {"now": 0}

    @dg.asset(
        partitions_def=definition,
        metadata={"partition_expr": "part", **metadata},
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def asset(context: dg.AssetExecutionContext) -> pa.Table:
        stamp["now"] += 1
        keys = [key for key in context.partition_keys for _ in range(rows)]
        return pa.table(
            {
                "part": pa.array([value(key) for key in keys], type_),
                "key": keys,
                "stamp": pa.array([stamp["now"]] * len(keys), pa.int64()),
            }
        )

    return asset


def stamps(tables):
    """Key -> the stamps of its rows."""
    found: dict[str, list[int]] = {}
    for row in tables.dataset("asset").to_table(columns=["key", "stamp"]).to_pylist():
        found.setdefault(row["key"], []).append(row["stamp"])
    return dict(sorted(found.items()))


def keys_of(column):
    return column[1].get_partition_keys()


def test_single_keys_replace_only_themselves(run, tables, column):
    asset, keys = make_asset(column), keys_of(column)
    for key in (keys[0], keys[2], keys[1], keys[2]):
        run(asset, partition_key=key)
    assert stamps(tables) == {keys[0]: [1, 1], keys[1]: [3, 3], keys[2]: [4, 4]}


def test_a_contiguous_range_is_one_commit(run, tables, column):
    asset, keys = make_asset(column), keys_of(column)
    run(asset, partition_range=(keys[0], keys[5]))
    before = tables.dataset("asset").version
    run(asset, partition_range=(keys[1], keys[3]))
    assert tables.dataset("asset").version == before + 1
    assert stamps(tables) == {k: [2, 2] if k in keys[1:4] else [1, 1] for k in keys[:6]}


def test_a_range_of_one_key(run, tables, column):
    asset, keys = make_asset(column), keys_of(column)
    run(asset, partition_range=(keys[1], keys[1]))
    assert stamps(tables) == {keys[1]: [1, 1]}


def test_an_empty_result_empties_its_partitions(run, tables, column):
    asset, keys = make_asset(column), keys_of(column)
    run(asset, partition_range=(keys[0], keys[2]))
    run(make_asset(column, rows=0), partition_key=keys[1])
    assert list(stamps(tables)) == [keys[0], keys[2]]


def test_append_keeps_what_is_there(run, tables, column):
    asset, keys = make_asset(column, rows=1, mode="append"), keys_of(column)
    run(asset, partition_key=keys[0])
    run(asset, partition_key=keys[0])
    run(asset, partition_key=keys[1])
    assert stamps(tables) == {keys[0]: [1, 2], keys[1]: [3]}


def load(root, column, mapping, *, key=None, definition=None):
    """Keys of the rows that an asset downstream is given."""
    seen = []

    @dg.asset(
        ins={"asset": dg.AssetIn(partition_mapping=mapping)} if mapping else {"asset": dg.AssetIn()},
        partitions_def=definition,
        io_manager_key="unused",
    )
    def down(asset: pa.Table) -> None:
        seen.extend(asset["key"].to_pylist())

    upstream = dg.AssetSpec("asset", partitions_def=column[1], metadata={"partition_expr": "part"})
    result = dg.materialize(
        [upstream.with_io_manager_key("io_manager"), down],
        selection=[down],
        resources={"io_manager": LanceIOManager(root=root), "unused": LanceIOManager(root=root)},
        partition_key=key,
        instance=dg.DagsterInstance.ephemeral(),
    )
    assert result.success
    return sorted(set(seen))


@pytest.fixture(scope="module")
def filled(tmp_path_factory, column):
    """A table with rows of every key but the fourth, and these keys. Tests only read it."""
    keys, root = keys_of(column), str(tmp_path_factory.mktemp("filled"))
    for start, end in ((keys[0], keys[2]), (keys[4], keys[5])):
        tags = {"dagster/asset_partition_range_start": start, "dagster/asset_partition_range_end": end}
        dg.materialize([make_asset(column)], resources={"io_manager": LanceIOManager(root=root)}, tags=tags)
    return root, keys[:3] + keys[4:6]


def test_load_all_partitions(column, filled):
    root, keys = filled
    assert load(root, column, None) == keys


def test_load_the_same_partition(column, filled):
    root, keys = filled
    assert load(root, column, None, key=keys[1], definition=column[1]) == [keys[1]]


def test_load_keys_that_are_no_range(column, filled):
    root, keys = filled
    wanted = [keys[0], keys[2], keys[4]]
    mapping = dg.SpecificPartitionsPartitionMapping(wanted)
    assert load(root, column, mapping) == wanted


def test_load_a_partition_without_rows(column, filled):
    root, keys = filled
    missing = next(key for key in keys_of(column) if key not in keys)
    assert load(root, column, None, key=missing, definition=column[1]) == []


@pytest.mark.parametrize("name", ["date32", "string", "timestamp_utc", "timestamp_new_york"])
def test_load_a_window_before(run, root, name):
    column = COLUMNS[name]
    keys = keys_of(column)
    run(make_asset(column), partition_range=(keys[0], keys[5]))
    mapping = dg.TimeWindowPartitionMapping(start_offset=-2)
    assert load(root, column, mapping, key=keys[4], definition=column[1]) == keys[2:5]


def test_boolean_keys(run, tables):
    asset = make_asset((pa.bool_(), TRUTH, lambda key: key == "true"))
    run(asset, partition_range=("false", "true"))
    run(asset, partition_key="true")
    assert stamps(tables) == {"false": [1, 1], "true": [2, 2]}


MULTI = dg.MultiPartitionsDefinition({"day": DAYS, "letter": dg.StaticPartitionsDefinition(["a", "b", "c"])})


def make_multi_asset():
    stamp = {"now": 0}

    @dg.asset(
        partitions_def=MULTI,
        metadata={"partition_expr": {"day": "at", "letter": "letter"}},
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def asset(context: dg.AssetExecutionContext) -> pa.Table:
        stamp["now"] += 1
        pairs = [MULTI.get_partition_key_from_str(key).keys_by_dimension for key in context.partition_keys]
        return pa.table(
            {
                "at": pa.array([noon_utc(pair["day"]) for pair in pairs], pa.timestamp("us", "UTC")),
                "letter": [pair["letter"] for pair in pairs],
                "key": [f"{pair['day'][-1]}{pair['letter']}" for pair in pairs],
                "stamp": pa.array([stamp["now"]] * len(pairs), pa.int64()),
            }
        )

    return asset


def test_a_multi_dimensional_range_is_a_product(run, tables):
    asset = make_multi_asset()
    run(asset, partition_range=("2026-11-01|a", "2026-11-03|c"))
    assert len(stamps(tables)) == 9
    run(asset, partition_range=("2026-11-01|b", "2026-11-02|c"))
    changed = {"1b", "1c", "2b", "2c"}
    assert stamps(tables) == {f"{d}{x}": [2 if f"{d}{x}" in changed else 1] for d in range(1, 4) for x in "abc"}


def test_a_single_multi_dimensional_key(run, tables):
    asset = make_multi_asset()
    run(asset, partition_range=("2026-11-01|a", "2026-11-02|b"))
    run(asset, partition_key="2026-11-02|a")
    assert stamps(tables) == {"1a": [1], "1b": [1], "2a": [2], "2b": [1]}


def test_keys_of_two_dimensions_that_are_no_product(run, root):
    run(make_multi_asset(), partition_range=("2026-11-01|a", "2026-11-03|c"))
    mapping = dg.SpecificPartitionsPartitionMapping(["2026-11-01|a", "2026-11-02|b", "2026-11-02|c"])
    seen = []

    @dg.asset(ins={"asset": dg.AssetIn(partition_mapping=mapping)})
    def down(asset: pa.Table) -> None:
        seen.extend(asset["key"].to_pylist())

    upstream = dg.AssetSpec(
        "asset", partitions_def=MULTI, metadata={"partition_expr": {"day": "at", "letter": "letter"}}
    ).with_io_manager_key("io_manager")
    dg.materialize([upstream, down], selection=[down], resources={"io_manager": LanceIOManager(root=root)})
    assert sorted(seen) == ["1a", "2b", "2c"]


def test_one_dimension_of_two(run, root):
    run(make_multi_asset(), partition_range=("2026-11-01|a", "2026-11-03|c"))
    seen = []

    @dg.asset(
        partitions_def=DAYS,
        ins={"asset": dg.AssetIn(partition_mapping=dg.MultiToSingleDimensionPartitionMapping("day"))},
    )
    def down(asset: pa.Table) -> None:
        seen.extend(asset["key"].to_pylist())

    upstream = dg.AssetSpec(
        "asset", partitions_def=MULTI, metadata={"partition_expr": {"day": "at", "letter": "letter"}}
    ).with_io_manager_key("io_manager")
    resources = {"io_manager": LanceIOManager(root=root)}
    dg.materialize([upstream, down], selection=[down], resources=resources, partition_key="2026-11-02")
    assert sorted(seen) == ["2a", "2b", "2c"]


def test_dynamic_partitions(run, instance, tables):
    definition = dg.DynamicPartitionsDefinition(name="letters")
    instance.add_dynamic_partitions("letters", ["x", "y"])
    asset = make_asset((pa.string(), definition, str), rows=1)
    for key in ("x", "y", "x"):
        run(asset, partition_key=key)
    assert stamps(tables) == {"x": [3], "y": [2]}
