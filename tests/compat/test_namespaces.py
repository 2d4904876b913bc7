"""Tables by name: in folders that pylance shares, and behind a REST service."""

import datetime as dt
import json
import pickle
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

import lance
import lance.namespace
import lance_namespace as ln
import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import DatasetAlreadyExistsError, DatasetNotFoundError, InvalidInputError, UnsupportedError
from lance_core.namespace import DirectoryNamespace, RestNamespace
from lance_core.store.open import open_store

ROWS = pa.table({"id": [1, 2]})


@pytest.fixture
def names(tmp_path):
    names = DirectoryNamespace(root=str(tmp_path))
    names.create_namespace(ln.CreateNamespaceRequest(id=["shop"], properties={"owner": "maps"}))
    return names


@pytest.fixture
def judge(tmp_path):
    return lance.namespace.DirectoryNamespace(root=str(tmp_path))


def test_pylance_reads_what_is_written_by_name(names, judge):
    lance_core.write_dataset(ROWS, namespace_client=names, table_id=["cities"])
    lance_core.write_dataset(ROWS, namespace_client=names, table_id=["shop", "orders"])
    lance_core.write_dataset(ROWS, namespace_client=names, table_id=["shop", "orders"], mode="append")
    assert lance.dataset(namespace_client=judge, table_id=["cities"]).to_table() == ROWS
    assert lance.dataset(namespace_client=judge, table_id=["shop", "orders"]).count_rows() == 4
    assert judge.list_tables(ln.ListTablesRequest(id=["shop"])).tables == ["orders"]
    assert judge.describe_namespace(ln.DescribeNamespaceRequest(id=["shop"])).properties == {"owner": "maps"}


def test_what_pylance_writes_by_name_is_read(names, judge):
    judge.create_namespace(ln.CreateNamespaceRequest(id=["shop", "old"], properties={"a": "b"}))
    lance.write_dataset(ROWS, namespace_client=judge, table_id=["cities"])
    lance.write_dataset(ROWS, namespace_client=judge, table_id=["shop", "old", "orders"])
    assert lance_core.dataset(namespace_client=names, table_id=["cities"]).to_table() == ROWS
    assert lance_core.dataset(namespace_client=names, table_id=["shop", "old", "orders"]).to_table() == ROWS
    assert names.list_namespaces(ln.ListNamespacesRequest(id=["shop"])).namespaces == ["old"]
    assert names.list_tables(ln.ListTablesRequest(id=[])).tables == ["cities"]
    assert names.describe_namespace(ln.DescribeNamespaceRequest(id=["shop", "old"])).properties == {"a": "b"}


def test_folders_are_tables_without_an_entry(tmp_path):
    lance_core.write_dataset(ROWS, tmp_path / "plain.lance")
    names = DirectoryNamespace(root=str(tmp_path))
    assert names.list_tables(ln.ListTablesRequest()).tables == ["plain"]
    assert lance_core.dataset(namespace_client=names, table_id=["plain"]).to_table() == ROWS
    with pytest.raises(DatasetAlreadyExistsError):
        lance_core.write_dataset(ROWS, namespace_client=names, table_id=["plain"])


@pytest.mark.parametrize("folder", ["", "/lake"])
def test_a_bucket_or_a_folder_of_it_is_the_root(s3, folder):
    root = f"{s3.uri}{folder}"
    names = DirectoryNamespace(root=root, **{f"storage.{key}": value for key, value in s3.storage_options.items()})
    lance_core.write_dataset(ROWS, f"{root}/plain.lance", storage_options=s3.storage_options)
    lance_core.write_dataset(ROWS, namespace_client=names, table_id=["orders"])
    assert names.list_tables(ln.ListTablesRequest()).tables == ["orders", "plain"]


def test_a_table_that_was_only_declared_can_be_created(names, judge):
    judge.declare_table(ln.DeclareTableRequest(id=["shop", "orders"]))
    assert names.describe_table(ln.DescribeTableRequest(id=["shop", "orders"], check_declared=True)).is_only_declared
    assert names.list_tables(ln.ListTablesRequest(id=["shop"], include_declared=False)).tables == []
    lance_core.write_dataset(ROWS, namespace_client=names, table_id=["shop", "orders"])
    assert lance.dataset(namespace_client=judge, table_id=["shop", "orders"]).to_table() == ROWS
    assert not names.describe_table(
        ln.DescribeTableRequest(id=["shop", "orders"], check_declared=True)
    ).is_only_declared


def test_tables_are_dropped_and_forgotten(names, judge, tmp_path):
    first = lance_core.write_dataset(ROWS, namespace_client=names, table_id=["shop", "orders"])
    names.deregister_table(ln.DeregisterTableRequest(id=["shop", "orders"]))
    assert lance_core.dataset(first.uri).to_table() == ROWS
    folder = first.uri.rsplit("/", 1)[1]
    names.register_table(ln.RegisterTableRequest(id=["shop", "back"], location=folder))
    assert lance.dataset(namespace_client=judge, table_id=["shop", "back"]).to_table() == ROWS
    with pytest.raises(ln.NamespaceNotEmptyError, match="'shop' has 1 objects"):
        names.drop_namespace(ln.DropNamespaceRequest(id=["shop"]))
    names.drop_table(ln.DropTableRequest(id=["shop", "back"]))
    assert not (tmp_path / folder).exists()
    names.drop_namespace(ln.DropNamespaceRequest(id=["shop"]))
    assert judge.list_namespaces(ln.ListNamespacesRequest(id=[])).namespaces == []


def test_long_lists_come_in_pages(names):
    for name in "cab":
        names.create_namespace(ln.CreateNamespaceRequest(id=["shop", name]))
    first = names.list_namespaces(ln.ListNamespacesRequest(id=["shop"], limit=2))
    second = names.list_namespaces(ln.ListNamespacesRequest(id=["shop"], limit=2, page_token=first.page_token))
    assert (first.namespaces, second.namespaces, second.page_token) == (["a", "b"], ["c"], None)


def test_what_is_wrong_is_refused(names):
    table = ["shop", "orders"]
    with pytest.raises(DatasetNotFoundError, match=r"no table 'shop\.orders'"):
        lance_core.dataset(namespace_client=names, table_id=table)
    with pytest.raises(InvalidInputError, match="either the address"):
        lance_core.dataset("x", namespace_client=names, table_id=table)
    with pytest.raises(InvalidInputError, match="as a list of names"):
        lance_core.write_dataset(ROWS, namespace_client=names, table_id="orders")
    with pytest.raises(InvalidInputError, match="give the address"):
        lance_core.dataset()
    with pytest.raises(ln.NamespaceNotFoundError, match="no namespace 'shops'"):
        lance_core.write_dataset(ROWS, namespace_client=names, table_id=["shops", "orders"])
    with pytest.raises(ln.NamespaceAlreadyExistsError):
        names.create_namespace(ln.CreateNamespaceRequest(id=["shop"]))
    for name in ("", "..", "a/b", "a$b", "a\\b"):
        with pytest.raises(InvalidInputError, match="cannot be the name"):
            lance_core.write_dataset(ROWS, namespace_client=names, table_id=[name])
    for location in ("../x", "/etc", "s3://other/x"):
        with pytest.raises(InvalidInputError, match="relative to the root"):
            names.register_table(ln.RegisterTableRequest(id=["stolen"], location=location))
    with pytest.raises(InvalidInputError, match="rot is not known"):
        DirectoryNamespace(rot="x")


METHODS = {
    ("namespace", "list"): ("list_namespaces", ln.ListNamespacesRequest),
    ("namespace", "table"): ("list_tables", ln.ListTablesRequest),
    ("namespace", "create"): ("create_namespace", ln.CreateNamespaceRequest),
    ("namespace", "describe"): ("describe_namespace", ln.DescribeNamespaceRequest),
    ("namespace", "exists"): ("namespace_exists", ln.NamespaceExistsRequest),
    ("namespace", "drop"): ("drop_namespace", ln.DropNamespaceRequest),
    ("table", "describe"): ("describe_table", ln.DescribeTableRequest),
    ("table", "declare"): ("declare_table", ln.DeclareTableRequest),
    ("table", "exists"): ("table_exists", ln.TableExistsRequest),
    ("table", "drop"): ("drop_table", ln.DropTableRequest),
}


class Service(BaseHTTPRequestHandler):
    """The REST protocol over a directory namespace."""

    def do_GET(self):
        self.answer({})

    def do_POST(self):
        self.answer(json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)) or b"{}"))

    def answer(self, body):
        address = urlsplit(self.path)
        _, _, kind, identity, verb, *_ = address.path.split("/")
        name, request = METHODS[kind, verb]
        query = parse_qs(address.query)
        parameters = {"limit": int(query["limit"][0])} if "limit" in query else {}
        names = [name for name in unquote(identity).split("$") if name]
        self.server.headers_seen.append(self.headers["X-Tenant"])
        try:
            result = getattr(self.server.names, name)(request(**{**body, **parameters, "id": names}))
        except ln.LanceNamespaceError as error:
            self.reply(404, {"error": str(error), "code": int(error.code)})
        else:
            self.reply(200, {} if result is None else result.to_dict())

    def reply(self, status, answer):
        content = json.dumps({**answer, **self.vend()} if status == 200 else answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def vend(self):
        return self.server.vended

    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture
def service(tmp_path):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    server.names, server.headers_seen, server.vended = DirectoryNamespace(root=str(tmp_path)), [], {}
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_tables_behind_a_service(service):
    uri = f"http://127.0.0.1:{service.server_port}"
    names = pickle.loads(pickle.dumps(RestNamespace(uri=uri, **{"header.X-Tenant": "maps"})))  # noqa: S301 our own
    names.create_namespace(ln.CreateNamespaceRequest(id=["shop"], properties={"owner": "maps"}))
    for mode in ("create", "append", "overwrite"):
        lance_core.write_dataset(ROWS, namespace_client=names, table_id=["shop", "orders"], mode=mode)
    table = lance_core.dataset(namespace_client=names, table_id=["shop", "orders"])
    assert (table.version, table.count_rows()) == (3, 2)
    judge = lance.namespace.RestNamespace(uri=uri, **{"header.X-Tenant": "maps"})
    assert lance.dataset(namespace_client=judge, table_id=["shop", "orders"]).to_table() == ROWS
    assert names.list_tables(ln.ListTablesRequest(id=["shop"])).tables == ["orders"]
    assert names.list_namespaces(ln.ListNamespacesRequest(id=[], limit=5)).namespaces == ["shop"]
    assert names.describe_namespace(ln.DescribeNamespaceRequest(id=["shop"])).properties == {"owner": "maps"}
    names.table_exists(ln.TableExistsRequest(id=["shop", "orders"]))
    names.drop_table(ln.DropTableRequest(id=["shop", "orders"]))
    with pytest.raises(DatasetNotFoundError):
        lance_core.dataset(namespace_client=names, table_id=["shop", "orders"])
    with pytest.raises(ln.NamespaceNotFoundError):
        names.namespace_exists(ln.NamespaceExistsRequest(id=["other"]))
    assert set(service.headers_seen) == {"maps"}


def test_tables_behind_the_service_of_pylance(tmp_path):
    with lance.namespace.RestAdapter("dir", {"root": str(tmp_path)}, port=0) as adapter:
        address, shop = f"http://127.0.0.1:{adapter.port}", ["shop", "orders"]
        names, judge = RestNamespace(uri=address), lance.namespace.RestNamespace(uri=address)
        names.create_namespace(ln.CreateNamespaceRequest(id=["shop"]))
        for mode in ("create", "append", "overwrite", "append"):
            lance_core.write_dataset(ROWS, namespace_client=names, table_id=shop, mode=mode)
        assert lance.dataset(namespace_client=judge, table_id=shop).count_rows() == 4
        lance.write_dataset(ROWS, namespace_client=judge, table_id=shop, mode="append")
        assert lance_core.dataset(namespace_client=names, table_id=shop).count_rows() == 6
        assert names.list_tables(ln.ListTablesRequest(id=["shop"])).tables == ["orders"]
        names.drop_table(ln.DropTableRequest(id=shop))
        with pytest.raises(DatasetNotFoundError):
            lance_core.dataset(namespace_client=names, table_id=shop)


def test_settings_of_the_service_reach_the_store(service):
    names = RestNamespace(uri=f"http://127.0.0.1:{service.server_port}")
    lance_core.write_dataset(ROWS, namespace_client=names, table_id=["orders"])
    service.vended = {"storage_options": {"durable": "perhaps", "expires_at_millis": "1"}}
    with pytest.raises(InvalidInputError, match="perhaps"):
        lance_core.dataset(namespace_client=names, table_id=["orders"])
    service.vended = {"managed_versioning": True}
    with pytest.raises(UnsupportedError, match="commits the versions of 'orders' itself"):
        lance_core.dataset(namespace_client=names, table_id=["orders"])


def test_credentials_that_expire_are_asked_for_again(service, s3, monkeypatch):
    """Each answer has other keys, which have ended already; the store of a table that is open uses the new ones."""
    answers = []

    def options():
        answers.append(f"key{len(answers)}")
        secret = {"aws_access_key_id": answers[-1], "aws_secret_access_key": "secret", "aws_session_token": "token"}
        address = {"aws_endpoint": s3.endpoint, "aws_region": "us-east-1", "allow_http": "true"}
        return {**secret, **address, "expires_at_millis": str(int(time.time() * 1000) - 1)}

    root = DirectoryNamespace(root=f"{s3.uri}/lake", **{f"storage.{k}": v for k, v in s3.storage_options.items()})
    monkeypatch.setattr(service, "names", root)
    monkeypatch.setattr(Service, "vend", lambda _: {"storage_options": options()})
    names = RestNamespace(uri=f"http://127.0.0.1:{service.server_port}")
    table = lance_core.write_dataset(ROWS, namespace_client=names, table_id=["orders"])
    asked = len(answers)
    assert asked > 1
    table.insert(ROWS)
    assert len(answers) > asked
    copy = pickle.loads(pickle.dumps(lance_core.dataset(namespace_client=names, table_id=["orders"])))  # noqa: S301
    assert copy.count_rows() == 4


@pytest.mark.parametrize(
    ("address", "options", "credential"),
    [
        ("az://c/t", {"azure_storage_sas_token": "sv=1&sig=2"}, {"sas_token": "sv=1&sig=2"}),
        ("gs://b/t", {"google_bearer_token": "abc"}, {"token": "abc"}),
    ],
)
def test_all_object_stores_renew(address, options, credential, monkeypatch):
    end = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
    monkeypatch.setattr("lance_core.namespace.vending.vended_options", lambda _: (options, end))
    account = {"account_name": "x"} if address.startswith("az") else {}
    store = open_store(address, {**account, "namespace": "{}"})
    assert store._bucket._credential_provider()() == {**credential, "expires_at": end}


def test_a_service_that_is_not_there_is_an_error():
    names = RestNamespace(uri="http://127.0.0.1:9")
    with pytest.raises(ln.ServiceUnavailableError):
        lance_core.dataset(namespace_client=names, table_id=["orders"])
    with pytest.raises(InvalidInputError, match="uri is missing"):
        RestNamespace(delimiter=".")
