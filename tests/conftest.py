"""Fixtures for all tests."""

import base64
import gc
import hmac
import importlib.util
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import threading
import uuid
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import ClassVar
from urllib.request import Request, urlopen

import hypothesis
import pytest
from botocore.retries.standard import ExponentialBackoff
from botocore.session import get_session
from xdist.scheduler import LoadScopeScheduling

from lance_core.format.table.manifest import decode_manifest_file, remember_manifest
from lance_core.store.cloud import object_client
from lance_core.store.cloud.client_options import ClientOptions
from lance_core.table import publish

pytest.register_assert_rewrite("lance_core.testing.branch_model")

# How long an example takes says how busy the machine is.
hypothesis.settings.register_profile("any speed", deadline=None)
hypothesis.settings.load_profile("any speed")

# Processes that tests start would otherwise compile all they import of this project, each for itself.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Pools of processes that commit at once are forks of one that has imported what all need.
multiprocessing.set_forkserver_preload(["pytest", "lance_core.dataset", "lance_core.testing.tables"])

# The optimizing compiler and parallel collectors cost Java processes that live for minutes more than they gain.
for _options in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS"):
    os.environ.setdefault(_options, "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# The folders of tests in the order in which several processes begin them: those with the longest files come first, so
# that the many short files of the last fill what is left of each process's time.
FOLDERS = ("spark", "dagster", "example", "faults", "compat", "properties", "golden", "project", "core")
SPARK_TESTS = (
    "tests/spark/",
    "tests/example/test_transforms.py",
    "tests/dagster/test_spark.py",
    "tests/dagster/test_column_lineage.py",
    "tests/compat/test_s3.py::test_spark",
)


class FilesScheduling(LoadScopeScheduling):
    """Give each process the tests of a file at once, and one of them all tests that share a Java process."""

    def _split_scope(self, nodeid):
        return "spark" if nodeid.startswith(SPARK_TESTS) else nodeid.partition("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    config.option.loadscopereorder = False  # by the number of tests, which says little about time
    return FilesScheduling(config, log)


def pytest_collection_modifyitems(config, items):
    if not hasattr(config, "workerinput"):
        return
    items.sort(key=lambda item: FOLDERS.index(item.nodeid.split("/", 2)[1]))
    strays = {item.nodeid for item in items if "jvm" in getattr(item, "fixturenames", ())}
    strays = {nodeid for nodeid in strays if not nodeid.startswith(SPARK_TESTS)}
    assert not strays, f"name these tests in SPARK_TESTS, or each process starts a Java process of its own: {strays}"


def _leave_to_rest():
    """Let garbage collections pass over what stays for good: a full one took a quarter of a second, in each of many."""
    gc.collect()
    gc.freeze()


def pytest_collection_finish():
    _leave_to_rest()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item, nextitem):
    """What the tests of a file left, caches and modules above all, stays."""
    if nextitem is None or nextitem.path != item.path:
        _leave_to_rest()


@cache
def _client_of(service, **options):
    """A client of botocore, which takes a tenth of a second to make."""
    return get_session().create_client(service, **options)


@dataclass(frozen=True, kw_only=True)
class S3Service:
    """A running service of `tests/s3_server.py`."""

    endpoint: str

    @property
    def storage_options(self):
        return {
            "aws_access_key_id": "test",
            "aws_secret_access_key": "secret",
            "aws_region": "us-east-1",
            "aws_endpoint": self.endpoint,
            "allow_http": "true",
        }

    def fail(self, method, contains, mode, **more):
        self._post("faults", [{"method": method, "contains": contains, "mode": mode, **more}])

    def recover(self):
        """No more faults; requests that are held are answered."""
        self._post("faults", [])

    def requests(self):
        """Requests since the last call: (method, path and query)."""
        return [tuple(one) for one in self._post("requests", None)]

    def create_bucket(self, bucket):
        with urlopen(Request(f"{self.endpoint}/{bucket}", method="PUT"), timeout=30) as answer:  # noqa: S310 - ours
            assert answer.status == 200

    def dynamo_client(self):
        return self._client("dynamodb")

    def s3_client(self):
        return self._client("s3")

    def put_objects(self, bucket, content):
        """Put small objects, by key, without a request for each."""
        self._post("objects", [bucket, content])

    def _client(self, service):
        options = {key.removeprefix("aws_"): value for key, value in self.storage_options.items()}
        return _client_of(
            service,
            region_name=options["region"],
            endpoint_url=self.endpoint,
            aws_access_key_id=options["access_key_id"],
            aws_secret_access_key=options["secret_access_key"],
        )

    def _post(self, what, content):
        request = Request(f"{self.endpoint}/_test/{what}", json.dumps(content).encode(), method="POST")  # noqa: S310
        with urlopen(request, timeout=30) as answer:  # noqa: S310 - ours
            return json.load(answer)


@pytest.fixture(scope="session", autouse=True)
def versions_are_what_their_files_say():
    """Each version that a test commits is what its file says, and who opens it later asks the file."""

    def check(manifest, pieces):
        assert decode_manifest_file(b"".join(pieces)) == manifest

    publish.remember_manifest = check
    yield
    publish.remember_manifest = remember_manifest


@pytest.fixture
def versions_are_remembered(monkeypatch):
    """As it is outside of tests: who opens what this process wrote last need not decode it."""
    monkeypatch.setattr(publish, "remember_manifest", remember_manifest)


@pytest.fixture(scope="session")
def preloading():
    """Settings of processes that start Spark: its Python workers need not import what their daemon has imported."""
    folders = [str(Path(__file__).with_name("spark") / "daemon"), os.environ.get("PYTHONPATH")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, folders)), "PYSPARK_PYTHON": sys.executable}


@pytest.fixture(scope="session")
def jvm(preloading):
    """The one Spark context of this process; tests make sessions of their own in it.

    Two workers, and a task is tried twice before its job fails.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415 - only tests that start Spark pay for it

    from lance_core.spark import ensure_java, recommended_conf  # noqa: PLC0415 - likewise
    from lance_core.spark.common import task_names  # noqa: PLC0415 - likewise

    ensure_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    conf = {
        **recommended_conf(),
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "OFF",
        # A few rows are read sooner than code for them is generated and compiled.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.shuffle.partitions": "2",
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", preloading["PYTHONPATH"])
        session = SparkSession.builder.master("local[2,2]").appName("tests").config(map=conf).getOrCreate()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task_names, "LAST_TASKS", 1.0)  # as in the daemons of Python workers
        yield session
    session.stop()


@pytest.fixture(scope="session")
def new_session(jvm):
    """Make a session with settings of its own."""

    def make(**conf):
        session = jvm.newSession()
        for key, value in conf.items():
            session.conf.set(f"spark.sql.{key}", value)
        return session

    return make


@pytest.fixture(scope="session")
def web_server():
    """Asks Dagster's GraphQL interface, as the pages of its UI do, about the definitions in a file or module."""
    # A test looks at what people see; these take long to import.
    from dagster._core.remote_origin import InProcessCodeLocationOrigin  # noqa: PLC0415
    from dagster._core.types.loadable_target_origin import LoadableTargetOrigin  # noqa: PLC0415
    from dagster._core.workspace.context import WorkspaceProcessContext  # noqa: PLC0415
    from dagster._core.workspace.load_target import InProcessWorkspaceLoadTarget  # noqa: PLC0415
    from dagster_graphql.cli import execute_query  # noqa: PLC0415

    @contextmanager
    def serve(instance, *, location="location", **target):
        target = LoadableTargetOrigin(executable_path=sys.executable, **target)
        workspace = InProcessWorkspaceLoadTarget(InProcessCodeLocationOrigin(target, location_name=location))
        with warnings.catch_warnings():
            # Dagster's own about its parts, while it takes definitions to pieces; not that it could not.
            warnings.simplefilter("ignore")
            warnings.filterwarnings("error", "Error loading")
            context = WorkspaceProcessContext(instance, workspace)
        with context as process:

            def ask(query, **variables):
                with warnings.catch_warnings():
                    # Dagster's own, while it makes its schema and its answers.
                    warnings.simplefilter("ignore")
                    answer = execute_query(process, query, variables)
                assert "errors" not in answer, answer["errors"]
                return answer["data"]

            yield ask

    return serve


@pytest.fixture(scope="session")
def s3_service():
    """An S3 service that lives as long as the tests do."""
    command = [sys.executable, "-W", "ignore", str(Path(__file__).with_name("s3_server.py"))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        yield S3Service(endpoint=process.stdout.readline().decode().strip())
        process.terminate()


@pytest.fixture
def short_pauses(monkeypatch):
    """Clients of object stores wait for milliseconds between their retries; how often they try stays."""
    retry_config = ClientOptions.retry_config
    backoff = {"init_backoff": timedelta(milliseconds=2), "max_backoff": timedelta(milliseconds=10), "base": 2}
    monkeypatch.setattr(ClientOptions, "retry_config", lambda self: {**retry_config(self), "backoff": backoff})
    monkeypatch.setattr(ExponentialBackoff, "delay_amount", lambda *_: 0.002)
    monkeypatch.setattr(object_client, "_LOST_PAUSE_S", 0.002)
    monkeypatch.setattr(object_client, "_CONFLICT_PAUSES_S", (0.002,) * len(object_client._CONFLICT_PAUSES_S))


@pytest.fixture
def s3(s3_service):
    """The service without faults and with a new, empty bucket: `s3.uri`."""
    bucket = f"bucket-{uuid.uuid4().hex}"
    s3_service._post("faults", [])
    s3_service.create_bucket(bucket)
    s3_service.requests()
    return S3Bucket(endpoint=s3_service.endpoint, uri=f"s3://{bucket}")


@pytest.fixture(scope="session")
def object_server():
    """A server that speaks like Azure and like Google Cloud, and its module; see `tests/object_server.py`."""
    spec = importlib.util.spec_from_file_location("object_server", Path(__file__).with_name("object_server.py"))
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    server = module.ObjectServer()
    yield server, module
    server.shutdown()
    server.server_close()


@pytest.fixture
def google(object_server):
    """Google Cloud without faults and with a new, empty bucket: `google.uri`."""
    server, module = object_server
    return module.place(server, "gs")


@pytest.fixture
def azure(object_server):
    """Azure without faults and with a new, empty container: `azure.uri`."""
    server, module = object_server
    return module.place(server, "az")


@pytest.fixture(params=["s3", "google", "azure"])
def cloud(request):
    """Each object store, with a new, empty bucket: `cloud.uri`."""
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="session")
def azurite_service():
    """Microsoft's own emulator of Azure, where it is installed: `npm install -g azurite`."""
    program = shutil.which("azurite-blob")
    if program is None:
        pytest.skip("azurite-blob is not installed")
    command = [program, "--blobPort", "0", "--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry"]
    environment = {**os.environ, "AZURITE_ACCOUNTS": f"{AzuriteContainer.account}:{AzuriteContainer.key}"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        endpoint = next(line.split()[-1] for line in process.stdout if "successfully listens" in line)
        threading.Thread(target=process.stdout.read, daemon=True).start()  # it must not wait for a reader
        yield endpoint
        process.terminate()


@pytest.fixture
def azurite(azurite_service):
    """The emulator with a new, empty container: `azurite.uri`."""
    found = AzuriteContainer(endpoint=azurite_service, name=f"container-{uuid.uuid4().hex}")
    found.create()
    return found


@pytest.fixture
def dynamo(s3):
    """The service with a new bucket and a new DynamoDB table: `dynamo.at("folder/t.lance")` is an address."""
    table = f"table-{uuid.uuid4().hex}"
    s3.dynamo_client().create_table(
        TableName=table,
        KeySchema=[
            {"AttributeName": "base_uri", "KeyType": "HASH"},
            {"AttributeName": "version", "KeyType": "RANGE"},
        ],
        AttributeDefinitions=[
            {"AttributeName": "base_uri", "AttributeType": "S"},
            {"AttributeName": "version", "AttributeType": "N"},
        ],
        BillingMode="PAY_PER_REQUEST",
    )
    s3.requests()
    return DynamoBucket(endpoint=s3.endpoint, uri=s3.uri, table=table)


@dataclass(frozen=True, kw_only=True)
class AzuriteContainer:
    endpoint: str
    name: str
    account: ClassVar[str] = "account"
    key: ClassVar[str] = "a2V5a2V5a2V5a2V5"

    @property
    def uri(self):
        return f"az://{self.name}"

    @property
    def address(self):
        return f"{self.endpoint}/{self.account}"

    def create(self):
        """Create the container, with a request that is signed as Azure asks for."""
        sent = {"x-ms-date": datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT"), "x-ms-version": "2021-12-02"}
        lines = ["PUT", *[""] * 11, *(f"{name}:{value}" for name, value in sent.items())]
        lines += [f"/{self.account}/{self.account}/{self.name}", "restype:container"]
        signature = hmac.digest(base64.b64decode(self.key), "\n".join(lines).encode(), "sha256")
        sent["Authorization"] = f"SharedKey {self.account}:{base64.b64encode(signature).decode()}"
        address = f"{self.address}/{self.name}?restype=container"
        with urlopen(Request(address, headers=sent, method="PUT"), timeout=30) as answer:  # noqa: S310 - ours
            assert answer.status == 201

    @property
    def storage_options(self):
        names = {"azure_storage_account_name": self.account, "azure_storage_account_key": self.key}
        return {**names, "azure_endpoint": self.address, "allow_http": "true"}


@dataclass(frozen=True, kw_only=True)
class S3Bucket(S3Service):
    uri: str


@dataclass(frozen=True, kw_only=True)
class DynamoBucket(S3Bucket):
    table: str

    @property
    def storage_options(self):
        return {**super().storage_options, "dynamodb_endpoint": self.endpoint}

    def at(self, path):
        return f"s3+ddb://{self.uri[5:]}/{path}?ddbTableName={self.table}"

    def rows(self, path):
        """What the table says of a dataset: version to (path, committer)."""
        found = self.dynamo_client().query(
            TableName=self.table,
            KeyConditionExpression="base_uri = :base",
            ExpressionAttributeValues={":base": {"S": path}},
        )["Items"]
        return {int(row["version"]["N"]): (row["path"]["S"], row["committer"]["S"]) for row in found}
