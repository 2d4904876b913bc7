"""Tables of other formats become Lance tables, and stay equal to their sources."""

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType
from pyiceberg.catalog import load_catalog
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform

import lance_core
from lance_core.errors import InvalidInputError, NotFoundError, SchemaMismatchError
from lance_core.importing.delta import DeltaSource

START = dt.datetime(2024, 1, 1, 5)  # noqa: DTZ001 a column without a time zone
TIMES = [START, START + dt.timedelta(days=1), None, START + dt.timedelta(hours=2), START]
ROWS = pa.table(
    {
        "id": pa.array(range(5), pa.int64()),
        "country": ["no", "se", None, "no", "d'oc"],
        "at": pa.array(TIMES, pa.timestamp("us")),
        "tags": [["a"], [], None, ["b", "c"], ["d"]],
    }
)
MORE = ROWS.set_column(0, "id", pa.array(range(10, 15), pa.int64())).filter(pc.field("country") == "no")


def in_order(table):
    return table.sort_by("id").to_pylist()


def rows_of(uri):
    return in_order(lance_core.dataset(uri).to_table())


@pytest.fixture
def delta(tmp_path):
    location = str(tmp_path / "delta")
    write_deltalake(location, ROWS, partition_by=["country"])
    return location


@pytest.fixture
def iceberg(tmp_path):
    options = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}
    catalog = load_catalog("shop", **options)
    catalog.create_namespace("sales")
    table = catalog.create_table("sales.orders", schema=ROWS.schema)
    with table.update_spec() as change:
        change.add_field("at", DayTransform())
        change.add_field("id", BucketTransform(2))
        change.add_field("country", IdentityTransform())
    table.append(ROWS)
    return table, options


def test_delta_partitions_that_have_changed_are_replaced(delta, tmp_path):
    target = tmp_path / "orders.lance"
    first = lance_core.import_table(delta, target)
    assert (first.source_version, first.partitions, first.rows) == ("0", 4, 5)
    assert rows_of(target) == in_order(ROWS)

    write_deltalake(delta, MORE, mode="append")
    DeltaTable(delta).delete("country = 'se'")
    second = lance_core.import_table(delta, target)
    assert (second.source_version, second.partitions, second.rows, second.commits) == ("2", 1, 4, 2)
    assert rows_of(target) == in_order(DeltaTable(delta).to_pyarrow_table())

    again = lance_core.import_table(delta, target)
    assert (again.version, again.partitions, again.commits) == (second.version, 0, 0)


def test_delta_deletion_vectors_are_applied(delta, tmp_path):
    DeltaTable(delta).alter.set_table_properties({"delta.enableDeletionVectors": "true"})
    lance_core.import_table(delta, tmp_path / "orders.lance")
    assert rows_of(tmp_path / "orders.lance") == in_order(ROWS)


def test_delta_columns_that_are_new_are_added(delta, tmp_path):
    target = tmp_path / "orders.lance"
    lance_core.import_table(delta, target)
    wider = MORE.append_column("price", pa.array([1.5] * len(MORE)))
    write_deltalake(delta, wider, mode="append", schema_mode="merge")
    lance_core.import_table(delta, target)
    assert rows_of(target) == in_order(DeltaTable(delta).to_pyarrow_table())


@pytest.mark.parametrize(
    "values",
    [
        pa.array([True, False, None]),
        pa.array([1, -2, None], pa.int16()),
        pa.array([1.5, 2.5, None]),
        pa.array([19_000, 1, None], pa.date32()),
        pa.array([10**15 + 1, 1, None], pa.timestamp("us", "UTC")),
        pa.array(["1.10", "2.20", None]).cast(pa.decimal128(10, 2)),
    ],
    ids=lambda values: str(values.type),
)
def test_delta_partitions_of_all_types_are_read_one_by_one(values, tmp_path):
    rows = pa.table({"id": [1, 2, 3], "part": values})
    write_deltalake(tmp_path / "delta", rows, partition_by=["part"])
    source = DeltaSource(str(tmp_path / "delta"), version=None, storage_options=None)
    parts = [source.read([name]).read_all() for name in source.partitions()]
    assert sorted(len(part) for part in parts) == [1, 1, 1]
    assert in_order(pa.concat_tables(parts)) == in_order(rows)
    lance_core.import_table(tmp_path / "delta", tmp_path / "lance")
    write_deltalake(tmp_path / "delta", rows, mode="append")
    assert lance_core.import_table(tmp_path / "delta", tmp_path / "lance").partitions == 3
    assert rows_of(tmp_path / "lance") == in_order(pa.concat_tables([rows, rows]))


def test_an_older_delta_version_is_imported_on_request(delta, tmp_path):
    write_deltalake(delta, MORE, mode="append")
    target = tmp_path / "orders.lance"
    lance_core.import_table(delta, target)
    lance_core.import_table(delta, target, source_version=0)
    assert rows_of(target) == in_order(ROWS)


def test_a_version_is_imported_again_after_another(tmp_path):
    source = tmp_path / "delta"
    write_deltalake(source, ROWS)
    write_deltalake(source, MORE, mode="append")
    for version, rows in ((0, ROWS), (1, pa.concat_tables([ROWS, MORE])), (0, ROWS)):
        lance_core.import_table(source, tmp_path / "t", source_version=version)
        assert rows_of(tmp_path / "t") == in_order(rows)


def test_new_columns_without_new_files_are_added(delta, tmp_path):
    lance_core.import_table(delta, tmp_path / "t")
    DeltaTable(delta).alter.add_columns([Field("price", PrimitiveType("double"))])
    assert lance_core.import_table(delta, tmp_path / "t").commits == 0
    assert rows_of(tmp_path / "t") == in_order(ROWS.append_column("price", pa.nulls(len(ROWS), pa.float64())))


@pytest.mark.parametrize(
    "values",
    [pa.array([19_000, 1, None], pa.date32()), pa.array(TIMES[:3], pa.timestamp("us", "UTC"))],
    ids=["date", "time"],
)
def test_iceberg_partitions_by_values_of_time_are_replaced(values, tmp_path, iceberg):
    rows = pa.table({"id": [1, 2, 3], "part": values})
    options = iceberg[1]
    table = load_catalog("shop", **options).create_table("sales.parts", schema=rows.schema)
    with table.update_spec() as change:
        change.add_field("part", IdentityTransform())
    for count in (3, 1):
        table.append(rows.slice(0, count))
        result = lance_core.import_table("shop.sales.parts", tmp_path / "t", format="iceberg", source_options=options)
        assert result.partitions == count
    assert rows_of(tmp_path / "t") == in_order(table.scan().to_arrow())


def test_iceberg_partitions_by_day_that_have_changed_are_replaced(iceberg, tmp_path):
    table, options = iceberg
    target = tmp_path / "orders.lance"
    first = lance_core.import_table("shop.sales.orders", target, format="iceberg", source_options=options)
    assert (first.partitions, first.rows) == (4, 5)
    assert rows_of(target) == in_order(ROWS)
    table.append(MORE.slice(0, 1))
    table.delete("country = 'se'")
    second = lance_core.import_table("shop.sales.orders", target, format="iceberg", source_options=options)
    assert (second.partitions, second.commits) == (1, 2)
    assert rows_of(target) == in_order(table.scan().to_arrow())


def test_iceberg_partitions_of_another_specification_replace_the_whole_table(iceberg, tmp_path):
    table, options = iceberg
    target = tmp_path / "orders.lance"
    lance_core.import_table("shop.sales.orders", target, format="iceberg", source_options=options)
    with table.update_spec() as change:
        change.remove_field("country")
    table.append(MORE)
    result = lance_core.import_table(table.metadata_location, target)
    assert result.commits == 1
    assert rows_of(target) == in_order(table.scan().to_arrow())


@pytest.fixture
def parquet(tmp_path):
    folder = tmp_path / "files"
    pads.write_dataset(
        ROWS,
        folder,
        format="parquet",
        partitioning=pads.partitioning(pa.schema([ROWS.schema.field("country")]), flavor="hive"),
    )
    (folder / "_SUCCESS").touch()
    return folder


def test_parquet_folders_are_partitions(parquet, tmp_path):
    target = tmp_path / "orders.lance"
    assert lance_core.import_table(parquet, target).partitions == 4
    assert rows_of(target) == in_order(ROWS.select(["id", "at", "tags", "country"]))
    assert lance_core.import_table(parquet, target).commits == 0
    pq.write_table(MORE.drop(["country"]), parquet / "country=no" / "more.parquet")
    assert lance_core.import_table(parquet, target).commits == 1
    assert rows_of(target) == in_order(pa.concat_tables([ROWS, MORE]).select(["id", "at", "tags", "country"]))


def test_a_parquet_file_is_a_source(tmp_path):
    pq.write_table(ROWS, tmp_path / "rows.parquet")
    lance_core.import_table(tmp_path / "rows.parquet", tmp_path / "table")
    assert lance_core.dataset(tmp_path / "table").to_table() == ROWS


@pytest.mark.parametrize("moves_on", [False, True], ids=["same version", "source moves on"])
def test_an_interrupted_import_goes_on(delta, tmp_path, monkeypatch, moves_on):
    target = tmp_path / "orders.lance"
    read, names_read = DeltaSource.read, []

    def read_two(source, names):
        if len(names_read) == 2:
            raise KeyboardInterrupt
        names_read.extend(names)
        return read(source, names)

    with monkeypatch.context() as patch:
        patch.setattr(DeltaSource, "read", read_two)
        with pytest.raises(KeyboardInterrupt):
            lance_core.import_table(delta, target, commit_bytes=1)
    assert "lance_core.import.version" not in lance_core.dataset(target).config()
    if moves_on:
        write_deltalake(delta, MORE, mode="append")
        DeltaTable(delta).delete("country = 'se'")
    result = lance_core.import_table(delta, target, commit_bytes=1)
    assert rows_of(target) == in_order(DeltaTable(delta).to_pyarrow_table())
    assert moves_on or result.partitions == 2


def test_a_failed_read_leaves_the_table_as_it_was(delta, tmp_path):
    target = tmp_path / "orders.lance"
    lance_core.import_table(delta, target)
    write_deltalake(delta, MORE, mode="append")
    next(Path(delta, "country=no").glob("*.parquet")).unlink()
    with pytest.raises(InvalidInputError, match=r"delta:.* cannot be read"):
        lance_core.import_table(delta, target)
    assert rows_of(target) == in_order(ROWS)


def test_progress_tells_bytes(delta, tmp_path):
    told = []
    lance_core.import_table(delta, tmp_path / "t", commit_bytes=1, progress=lambda *step: told.append(step))
    assert [what for what, _, _ in told] == ["importing"] * 4
    assert told[-1][1] == told[-1][2] > told[0][1] > 0


def test_wrong_arguments_are_refused(delta, tmp_path):
    lance_core.write_dataset(ROWS, tmp_path / "other")
    with pytest.raises(InvalidInputError, match="was not made by an import"):
        lance_core.import_table(delta, tmp_path / "other")
    with pytest.raises(InvalidInputError, match="'orc' is not known; it is one of parquet, delta, iceberg"):
        lance_core.import_table(delta, tmp_path / "t", format="orc")
    with pytest.raises(NotFoundError, match="no Delta table with a version 7"):
        lance_core.import_table(delta, tmp_path / "t", source_version=7)
    with pytest.raises(NotFoundError, match="no Parquet files"):
        lance_core.import_table(tmp_path / "nothing", tmp_path / "t")
    with pytest.raises(InvalidInputError, match="have no versions"):
        lance_core.import_table(delta, tmp_path / "t", format="parquet", source_version=1)
    with pytest.raises(InvalidInputError, match="commit_bytes is 0"):
        lance_core.import_table(delta, tmp_path / "t", commit_bytes=0)
    with pytest.raises(NotFoundError, match="cannot be loaded"):
        lance_core.import_table(tmp_path / "v1.metadata.json", tmp_path / "t")
    assert not (tmp_path / "t").exists()


def test_a_column_of_another_type_is_refused(delta, tmp_path):
    target = tmp_path / "orders.lance"
    lance_core.import_table(delta, target)
    other = ROWS.set_column(0, "id", pa.array([str(number) for number in range(5)]))
    write_deltalake(delta, other, mode="overwrite", schema_mode="overwrite", partition_by=["country"])
    with pytest.raises(SchemaMismatchError, match="'id' of the source has become string, in the table it is int64"):
        lance_core.import_table(delta, target)
    assert rows_of(target) == in_order(ROWS)
