"""The IO manager stores and loads tables by their names in a namespace."""

import dagster as dg
import lance
import lance.namespace
import lance_namespace as ln
import pyarrow as pa
import pytest

import lance_dagster
from lance_core.errors import DatasetNotFoundError, InvalidInputError
from lance_core.namespace import DirectoryNamespace

ROWS = pa.table({"n": [1, 2, 3]})


@dg.asset(key_prefix="sales")
def orders() -> pa.Table:
    return ROWS


@dg.asset(key_prefix="sales")
def large(orders: pa.Table) -> pa.Table:
    return orders.filter(pa.compute.field("n") > 1)


@pytest.fixture
def manager(tmp_path):
    return lance_dagster.LanceIOManager(root="lake", namespace={"impl": "dir", "root": str(tmp_path)})


def test_assets_are_tables_of_the_namespace(manager, tmp_path):
    for _ in range(2):
        assert dg.materialize([orders, large], resources={"io_manager": manager}).success
    judge = lance.namespace.DirectoryNamespace(root=str(tmp_path))
    assert judge.list_tables(ln.ListTablesRequest(id=["lake", "sales"])).tables == ["large", "orders"]
    table = lance.dataset(namespace_client=judge, table_id=["lake", "sales", "large"])
    assert (table.version, table.to_table()["n"].to_pylist()) == (2, [2, 3])


def test_what_was_never_stored_is_not_there_and_takes_no_name(manager, tmp_path):
    with pytest.raises(DatasetNotFoundError):
        manager.tables.open(manager.tables.uri(dg.AssetKey(["sales", "orders"])))
    names = DirectoryNamespace(root=str(tmp_path))
    assert names.list_namespaces(ln.ListNamespacesRequest(id=[])).namespaces == []


def test_definitions_ask_no_namespace():
    manager = lance_dagster.LanceIOManager(root="lake", namespace={"impl": "rest", "uri": "http://127.0.0.1:9"})
    assert manager.tables.address(dg.AssetKey(["sales", "orders"])) == "namespace://lake/sales/orders"


def test_a_namespace_needs_its_kind():
    manager = lance_dagster.LanceIOManager(root="", namespace={"uri": "http://127.0.0.1:9"})
    with pytest.raises(InvalidInputError, match="needs `impl`"):
        manager.tables.uri(dg.AssetKey("orders"))
