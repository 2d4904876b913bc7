"""Write, audit, publish: a run writes to a branch, checks it, and only then changes what others read."""

import dagster as dg
import pyarrow as pa
import pytest

from lance_core.errors import CommitConflictError, RefNotFoundError
from lance_dagster import LanceIOManager, LanceResource, build_lance_checks

DAYS = dg.StaticPartitionsDefinition(["a", "b"])
AUDIT = {"lance/branch": "audit"}


@dg.asset(partitions_def=DAYS, metadata={"partition_expr": "day"})
def orders(context: dg.AssetExecutionContext) -> pa.Table:
    prices = [float(price) for price in context.run.tags.get("prices", "1 2").split()]
    return pa.table({"day": [context.partition_key] * len(prices), "price": prices})


@dg.asset(partitions_def=DAYS, deps=[orders])
def published_orders(context: dg.AssetExecutionContext, lance: LanceResource) -> None:
    if "lance/branch" in context.run.tags:
        lance.publish(
            "orders", context.run.tags["lance/branch"], where=f"day = '{context.partition_key}'", context=context
        )


CHECKS = build_lance_checks(orders, max_rows=4, blocking=True)


@pytest.fixture
def go(root, instance):
    job = dg.Definitions(
        assets=[orders, published_orders],
        asset_checks=[CHECKS],
        resources={"io_manager": LanceIOManager(root=root), "lance": LanceResource(root=root)},
        executor=dg.in_process_executor,
    ).resolve_implicit_global_asset_job_def()

    def materialize(day, **tags):
        tags = {key.replace("__", "/"): value for key, value in tags.items()}
        return job.execute_in_process(instance=instance, partition_key=day, tags=tags, raise_on_error=False)

    return materialize


def prices(tables, **options):
    rows = tables.dataset("orders", **options).to_table().to_pylist()
    return sorted((row["day"], row["price"]) for row in rows)


def test_only_what_passed_its_checks_is_published(go, tables):
    assert go("a").success
    assert go("b", lance__branch="audit", prices="3 4").success
    assert prices(tables) == [("a", 1), ("a", 2), ("b", 3), ("b", 4)]
    assert tables.history("orders")[0]["properties"]["lance/published_from"] == "audit@2"
    bad = go("b", lance__branch="audit", prices="5 6 7")
    assert not bad.success
    (check,) = bad.get_asset_check_evaluations()
    assert (check.passed, check.metadata["dagster/row_count"].value) == (False, 5)  # of the branch
    assert len(prices(tables, branch="audit")) == 5
    assert prices(tables) == [("a", 1), ("a", 2), ("b", 3), ("b", 4)]
    assert go("b", lance__branch="audit", prices="8").success
    assert prices(tables) == [("a", 1), ("a", 2), ("b", 8)]


def test_other_rows_may_change_meanwhile(go, tables):
    go("a")
    go("b")
    tables.dataset("orders").create_branch("audit").delete("day = 'a'")
    tables.dataset("orders").update({"price": "9.0"}, where="day = 'b'")
    tables.publish("orders", "audit", where="day = 'a'")
    assert prices(tables) == [("b", 9), ("b", 9)]


def test_a_whole_table_with_other_columns(go, tables):
    go("a")
    branch = tables.dataset("orders").create_branch("audit")
    branch.add_columns({"double": "price * 2"})
    assert tables.publish("orders", "audit").version == 2
    assert tables.dataset("orders").to_table().to_pydict() == {"day": ["a", "a"], "price": [1, 2], "double": [2, 4]}
    branch.delete("price = 1.0")
    assert tables.publish("orders", "audit").count_rows() == 1


def test_what_others_wrote_is_not_undone(go, tables):
    go("a")
    tables.dataset("orders").create_branch("audit")
    tables.compact("orders")
    go("b")
    version = tables.dataset("orders").version
    with pytest.raises(CommitConflictError, match=f"Version {version} of the main branch"):
        tables.publish("orders", "audit")
    assert tables.dataset("orders").version == version


def test_no_such_branch(go, tables):
    go("a")
    with pytest.raises(RefNotFoundError):
        tables.publish("orders", "audit")
