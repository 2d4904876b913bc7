"""Definitions of tables: kind, place and links for the UI."""

import dagster as dg
import pyarrow as pa

from lance_dagster import LanceIOManager, LanceResource, build_maintenance_definitions, describe_tables


def test_tables_get_a_kind_a_place_and_links_to_their_maintenance(root):
    @dg.asset(kinds={"arrow"}, metadata={"dagster/table_name": "mine"})
    def orders() -> pa.Table: ...

    @dg.asset(io_manager_key="other")
    def report() -> str: ...

    @dg.asset
    def mail() -> None: ...

    @dg.asset(metadata={"lance/uri": f"{root}/elsewhere"})
    def moved() -> pa.Table: ...

    resources = {
        "io_manager": LanceIOManager(root=root),
        "other": dg.InMemoryIOManager(),
        "lance": LanceResource(root=root),
    }
    defs = dg.Definitions.merge(
        dg.Definitions(assets=[orders, report, mail, moved], resources=resources),
        build_maintenance_definitions([orders], per="table"),
    )
    specs = {spec.key.to_user_string(): spec for spec in describe_tables(defs).resolve_all_asset_specs()}
    assert specs["orders"].kinds == {"arrow", "lance"}
    assert specs["orders"].metadata["dagster/table_name"] == "mine"
    assert specs["orders"].metadata["dagster/uri"] == LanceResource(root=root).uri("orders")
    link = specs["orders"].metadata["lance/maintenance"].value
    assert link == "[orders/maintenance](/assets/orders/maintenance)"
    assert specs["orders/maintenance"].metadata["lance/maintained_table"].asset_key == dg.AssetKey("orders")
    assert "lance" not in specs["report"].kinds
    assert not specs["mail"].kinds
    assert specs["moved"].metadata["dagster/uri"] == f"{root}/elsewhere"
    assert "dagster/uri" not in specs["lance_maintenance/table_health"].metadata
