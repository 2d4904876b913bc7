"""The IO manager stores and loads tables by their names in a namespace."""

import dagster as dg
import lance
import lance.namespace
import lance_namespace as ln
import pyarrow as pa
import pytest

import lance_dagster
from lance_core import LanceDataset
from lance_core.errors import DatasetNotFoundError, InvalidInputError
from lance_core.namespace import DirectoryNamespace
from lance_core.namespace.vending import _IMPLEMENTATIONS

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


@pytest.fixture
def resource(tmp_path):
    return lance_dagster.LanceResource(root="lake", namespace={"impl": "dir", "root": str(tmp_path)})


def test_the_resource_writes_reads_and_lists_tables_of_the_namespace(resource, tmp_path):
    assert not resource.exists("sales/orders")
    for _ in range(2):
        resource.write("sales/orders", ROWS)
    assert resource.dataset("sales/orders").count_rows() == 6
    judge = lance.namespace.DirectoryNamespace(root=str(tmp_path))
    table = lance.dataset(namespace_client=judge, table_id=["lake", "sales", "orders"])
    assert (table.version, table.count_rows()) == (2, 6)
    resource.write("top", ROWS)
    assert [key.to_user_string() for key in resource.tables.asset_keys()] == ["top", "sales/orders"]


def test_tables_of_the_namespace_are_checked_and_maintained(manager, resource):
    for _ in range(3):
        resource.write("sales/orders", ROWS)
    upkeep = lance_dagster.build_maintenance_definitions(["sales/orders"], per="table", when_needed=resource)
    checks = lance_dagster.build_lance_checks("sales/orders", min_rows=9)
    defs = dg.Definitions.merge(
        dg.Definitions(assets=[orders], asset_checks=[checks], resources={"io_manager": manager, "lance": resource}),
        upkeep,
    )
    with dg.DagsterInstance.ephemeral() as instance:
        job = defs.resolve_job_def("lance_maintenance")
        assert job.execute_in_process(instance=instance).success
        requested = dg.evaluate_automation_conditions(defs=defs, instance=instance).total_requested
    assert len(resource.dataset("sales/orders").get_fragments()) == 1
    assert requested == 0


def test_a_branch_of_a_table_of_the_namespace(resource):
    resource.write("sales/orders", ROWS)
    trial = lance_dagster.LanceResource(root="lake", namespace=resource.namespace, branch="trial")
    trial.write("sales/orders", ROWS)
    assert (trial.dataset("sales/orders").count_rows(), resource.dataset("sales/orders").count_rows()) == (6, 3)


def test_components_name_tables_by_a_namespace(resource, tmp_path, monkeypatch):
    resource.write("sales/orders", ROWS)
    resource.write("top", ROWS)
    monkeypatch.setenv("CATALOG", str(tmp_path))
    storage = {"root": "lake", "namespace": {"impl": "dir"}, "namespace_from_env": {"root": "CATALOG"}}
    state = tmp_path / "state.json"
    discovery = lance_dagster.LanceDiscoveryComponent(**storage)
    discovery.write_state_to_path(state)
    specs = {
        spec.key.to_user_string(): spec
        for spec in discovery.build_defs_from_state(None, state).resolve_all_asset_specs()
    }
    assert sorted(specs) == ["sales/orders", "top"]
    assert specs["sales/orders"].metadata["lance/rows"] == 3

    @dg.asset
    def count(top: pa.Table) -> pa.Table:
        return pa.table({"rows": [top.num_rows]})

    resources = lance_dagster.LanceResourcesComponent(**storage).build_defs(None).resources
    assert dg.materialize([specs["top"], count], resources=resources, selection=[count]).success
    assert resource.dataset("count").to_table()["rows"].to_pylist() == [3]


class VendingNamespace(DirectoryNamespace):
    """Gives storage options with each table."""

    def describe_table(self, request):
        answer = super().describe_table(request)
        answer.storage_options = {"aws_session_token": "vended"}
        return answer


def test_tables_under_other_keys_get_what_the_namespace_vends(resource, tmp_path, monkeypatch):
    resource.write("sales/orders", ROWS)
    monkeypatch.setitem(_IMPLEMENTATIONS, "dir", VendingNamespace)
    storage = {"root": "lake", "namespace": resource.namespace}
    state = tmp_path / "state.json"
    discovery = lance_dagster.LanceDiscoveryComponent(**storage, key_prefix=["shop"])
    discovery.write_state_to_path(state)
    (spec,) = discovery.build_defs_from_state(None, state).resolve_all_asset_specs()
    assert (spec.key.path, spec.metadata["lance/uri"]) == (["shop", "sales", "orders"], "namespace://lake/sales/orders")
    loaded = []

    @dg.asset(ins={"orders": dg.AssetIn(spec.key)})
    def count(orders: LanceDataset) -> None:
        loaded.append((orders.count_rows(), orders.storage_options))

    @dg.asset(metadata={"lance/uri": "namespace://lake/elsewhere"})
    def copied() -> pa.Table:
        return ROWS

    resources = lance_dagster.LanceResourcesComponent(**storage).build_defs(None).resources
    assert dg.materialize([spec, count, copied], resources=resources, selection=[count, copied]).success
    assert loaded == [(3, {"aws_session_token": "vended"})]
    assert resource.dataset("elsewhere").count_rows() == 3


def test_an_address_in_a_namespace_needs_one(tmp_path):
    manager = lance_dagster.LanceIOManager(root=str(tmp_path))
    with pytest.raises(InvalidInputError, match="which needs `namespace` of the IO manager"):
        manager.tables.uri(dg.AssetKey("orders"), given="namespace://sales/orders")


def test_components_need_a_root_or_a_namespace():
    with pytest.raises(InvalidInputError, match="'root' is empty"):
        lance_dagster.LanceResourcesComponent(root="").build_defs(None)
    twice = {"namespace": {"uri": "x"}, "namespace_from_env": {"uri": "X"}}
    with pytest.raises(InvalidInputError, match=r"namespace \['uri'\] are given both"):
        lance_dagster.LanceResourcesComponent(root="", **twice).build_defs(None)


def test_a_namespace_needs_its_kind():
    manager = lance_dagster.LanceIOManager(root="", namespace={"uri": "http://127.0.0.1:9"})
    with pytest.raises(InvalidInputError, match="needs `impl`"):
        manager.tables.uri(dg.AssetKey("orders"))
