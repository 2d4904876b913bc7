"""Events of OpenLineage reach a collector: edges of tables and columns, with the Lance versions."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import dagster as dg
import pyarrow as pa
import pytest

from lance_core.errors import InvalidInputError
from lance_dagster import build_openlineage_sensor
from lance_dagster.lineage import open_lineage


@dg.asset(key_prefix="shop")
def orders() -> pa.Table:
    return pa.table({"id": [1, 2], "price": [2.0, 3.0]})


@dg.asset(
    metadata={
        "dagster/column_lineage": dg.TableColumnLineage(
            {"total": [dg.TableColumnDep(asset_key=["shop", "orders"], column_name="price")]}
        )
    },
    ins={"orders": dg.AssetIn(["shop", "orders"])},
)
def revenue(orders: pa.Table) -> pa.Table:
    return pa.table({"total": [sum(orders["price"].to_pylist())]})


@pytest.fixture
def collector():
    """A server that keeps what is posted to it."""
    received = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.append((self.path, json.loads(body)))
            self.send_response(201)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", received
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def tick(instance):
    def evaluate(sensor, cursor):
        with dg.build_sensor_context(instance=instance, cursor=cursor) as context:
            sensor.evaluate_tick(context)
            return context.cursor

    return evaluate


def test_a_collector_gets_tables_columns_and_versions(run, tick, collector):
    url, received = collector
    sensor = build_openlineage_sensor([orders, revenue], url=url, namespace="prod", start="oldest")
    run(orders)
    result = run(orders, revenue)
    cursor = tick(sensor, None)
    assert [path for path, _ in received] == ["/api/v1/lineage"] * 3
    event = received[-1][1]
    assert (event["eventType"], event["job"]) == ("COMPLETE", {"namespace": "prod", "name": "revenue"})
    assert event["run"]["facets"]["parent"]["run"] == {"runId": result.run_id}
    (read,), (written,) = event["inputs"], event["outputs"]
    assert (read["name"], read["facets"]["version"]["datasetVersion"]) == ("shop/orders", "2")
    assert (written["name"], written["facets"]["version"]["datasetVersion"]) == ("revenue", "1")
    assert written["facets"]["columnLineage"]["fields"] == {
        "total": {"inputFields": [{"namespace": "prod", "name": "shop/orders", "field": "price"}]}
    }
    assert [field["name"] for field in written["facets"]["schema"]["fields"]] == ["total"]
    assert written["facets"]["dataSource"]["uri"].endswith("/revenue.lance")
    assert written["outputFacets"]["outputStatistics"]["rowCount"] == 1
    assert all(facet["_schemaURL"].startswith("https://openlineage.io/") for facet in written["facets"].values())
    assert (tick(sensor, cursor), len(received)) == (cursor, 3)


def test_the_sensor_begins_with_what_comes_next_and_repeats_what_failed(run, tick, instance):
    sent, is_down = [], [True]

    def send(event):
        if is_down[0]:
            raise OSError("down")
        sent.append(event)

    sensor = build_openlineage_sensor("shop/orders", send=send)
    run(orders)
    cursor = tick(sensor, None)
    instance.report_runless_asset_event(dg.AssetMaterialization(["shop", "orders"], metadata={"lance/version": 7}))
    with pytest.raises(OSError, match="down"):
        tick(sensor, cursor)
    is_down[0] = False
    tick(sensor, cursor)
    (event,) = sent
    assert event["outputs"][0]["facets"]["version"]["datasetVersion"] == "7"


def test_many_events_are_sent_in_order_without_a_gap(instance, tick, monkeypatch):
    monkeypatch.setattr(open_lineage, "_MAX_EVENTS", 2)
    for number in range(5):
        for name in ("a", "b") if number == 4 else ("a",):
            instance.report_runless_asset_event(dg.AssetMaterialization(name, metadata={"lance/version": number}))
    sent: list[str] = []

    def send(event):
        sent.append(event["job"]["name"] + event["outputs"][0]["facets"]["version"]["datasetVersion"])

    sensor = build_openlineage_sensor(["a", "b"], send=send, start="oldest")
    cursor = None
    for _ in range(4):
        cursor = tick(sensor, cursor)
    assert sent == ["a0", "a1", "a2", "a3", "a4", "b4"]


def test_settings_that_make_no_sense_are_refused():
    for given in ({}, {"url": "http://x", "send": print}, {"url": "ftp://x"}, {"send": print, "start": "now"}):
        with pytest.raises(InvalidInputError):
            build_openlineage_sensor("a", **given)
