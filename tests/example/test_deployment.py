"""The files of `deploy`: what they say fits together, and the same topology runs as processes of this machine."""

import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.request import Request, urlopen

import pyspark
import pytest
import yaml

import lance_core
from lance_core.spark import ensure_java

DEPLOY = Path(__file__).parents[2] / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "docker-compose.yaml").read_text())
SERVICES = COMPOSE["services"]
_SPEC = importlib.util.spec_from_file_location("radosgw", Path(__file__).parents[1] / "radosgw.py")
radosgw = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(radosgw)
START = (
    "mutation($p: ExecutionParams!) { launchRun(executionParams: $p) { ... on LaunchRunSuccess { run { runId } } } }"
)
STATUS = "query($id: ID!) { runOrError(runId: $id) { ... on Run { status } } }"


def test_services_have_the_variables_that_the_settings_name():
    text = (DEPLOY / "dagster.yaml").read_text() + (DEPLOY / "workspace.yaml").read_text()
    names = set(re.findall(r"\{env: (\w+)\}", text))
    lake = set(re.findall(r'EnvVar\("(\w+)"\)', (DEPLOY / "locations" / "lake.py").read_text()))
    assert len(names) == 9
    for service in ("webserver", "daemon", "ingest", "reports"):
        assert names <= SERVICES[service]["environment"].keys()
    for service in ("ingest", "reports"):
        assert lake <= SERVICES[service]["environment"].keys()


def test_services_name_services_and_fixed_images():
    for service in SERVICES.values():
        assert set(service.get("depends_on", ())) <= SERVICES.keys()
        assert not service["image"].endswith(":latest")
        assert ":" in service["image"]


def test_the_image_has_what_the_services_start():
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    assert re.search(r"^USER [1-9]\d+$", dockerfile, re.MULTILINE)
    for source in re.findall(r"deploy/[\w./]+", dockerfile):
        assert (DEPLOY.parent / source).exists() or source == "deploy/Dockerfile"
    for service in ("ingest", "reports"):
        assert (DEPLOY / "locations" / SERVICES[service]["command"][-1]).is_file()


def test_the_values_start_the_same_code_locations():
    values = yaml.safe_load((DEPLOY / "helm" / "values.yaml").read_text())
    deployments = values["dagster-user-deployments"]["deployments"]
    assert [deployment["name"] for deployment in deployments] == ["ingest", "reports"]
    for deployment in deployments:
        assert (DEPLOY / deployment["dagsterApiGrpcArgs"][-1]).is_file()
        assert deployment["securityContext"]["runAsNonRoot"]


def test_the_image_has_what_the_chart_names():
    values = yaml.safe_load((DEPLOY / "helm" / "values.yaml").read_text())
    assert (values["runLauncher"]["type"], values["postgresql"]["enabled"]) == ("K8sRunLauncher", True)
    extras = re.search(r"'\.\[([\w,]+)\]'", (DEPLOY / "Dockerfile").read_text())[1].split(",")
    assert {"k8s", "postgres", "ui"} <= set(extras)
    assert values["dagsterWebserver"]["service"]["port"] > 1024


# ------------------------------------------------------------------------------------------------ as processes, in deep


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def is_open(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait(condition, what, seconds=180):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} took more than {seconds} s"
        time.sleep(0.3)


class Machine:
    """Processes of a deployment, and a log for each of them."""

    def __init__(self, folder):
        self.folder = folder
        self.started = []

    def start(self, name, *command, port=None, **options):
        with (self.folder / f"{name}.log").open("w") as log:
            process = subprocess.Popen(
                [*map(str, command)], stdout=log, stderr=subprocess.STDOUT, start_new_session=True, **options
            )
        self.started.append(process)
        if port is not None:
            wait(lambda: process.poll() is not None or is_open(port), name)
            assert process.poll() is None, self.log(name)

    def log(self, name):
        return (self.folder / f"{name}.log").read_text()

    def stop(self):
        for process in reversed(self.started):
            process.send_signal(signal.SIGINT)
        for process in self.started:
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=20)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def start_postgres(machine, home):
    """A server of its own in an empty folder; it refuses to be root. Its port."""
    user = "postgres" if os.getuid() == 0 else None
    if user:
        shutil.chown(home, user)
    port = free_port()
    options = {"user": user, "cwd": home}
    initdb = ["initdb", "--pgdata", home / "data", "--username", "dagster", "--auth", "trust"]
    subprocess.run(initdb, check=True, capture_output=True, **options)
    arguments = ["-D", home / "data", "-p", port, "-c", "listen_addresses=127.0.0.1", "-k", home]
    machine.start("postgres", shutil.which("postgres"), *arguments, port=port, **options)
    wait(lambda: subprocess.run(["pg_isready", "-h", "127.0.0.1", "-p", str(port)], check=False).returncode == 0, "it")
    subprocess.run(["createdb", "-h", "127.0.0.1", "-p", str(port), "-U", "dagster", "dagster"], check=True)
    return port


@dataclass(frozen=True)
class Installation:
    """Where the programs are, and how each is started: in this environment, or in an unpacked image."""

    scripts: Path
    spark: Path
    home: Path
    locations: Path
    work: Path
    variables: dict
    prefix: tuple = ()

    def program(self, name):
        return [*self.prefix, self.scripts / name]


def installed(machine):
    """This environment; or, with IMAGE_ROOT, the root folder of an image, entered as its user (needs root)."""
    root = os.environ.get("IMAGE_ROOT")
    if root is None:
        home = machine.folder / "home"
        home.mkdir()
        for name in ("dagster.yaml", "workspace.yaml"):
            shutil.copy(DEPLOY / name, home)
        spark = Path(pyspark.__file__).parent
        variables = {
            **os.environ,
            "SPARK_HOME": str(spark),
            "PYSPARK_PYTHON": sys.executable,
            "DAGSTER_HOME": str(home),
        }
        return Installation(
            Path(sys.executable).parent, spark, home, DEPLOY / "locations", machine.folder / "work", variables
        )
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    user = re.search(r"^USER (\d+)$", dockerfile, re.MULTILINE)[1]
    variables = dict(re.findall(r"^(?:ENV|   ) ([A-Z_]+)=(\S+)", dockerfile, re.MULTILINE))
    home = Path(variables["DAGSTER_HOME"])
    prefix = (shutil.which("chroot"), f"--userspec={user}:{user}", root, "env", "-C", home)
    variables |= {"HOME": "/home/dagster", "SPARK_LOCAL_HOSTNAME": "localhost"}
    return Installation(
        Path("/opt/venv/bin"), Path(variables["SPARK_HOME"]), home, home / "locations",
        Path(variables["SPARK_WORKER_DIR"]), variables, prefix,
    )  # fmt: skip


def start_spark(machine, there, environment):
    """A master and two workers that believe to be on different machines."""
    port = free_port()
    program = [*there.prefix, there.spark / "bin" / "spark-class", "org.apache.spark.deploy.master.Master"]
    options = {"env": {**environment, "SPARK_DAEMON_MEMORY": "256m"}}
    machine.start("master", *program, "--host", "127.0.0.1", "--port", port, "--webui-port", 0, port=port, **options)
    program[-1] = "org.apache.spark.deploy.worker.Worker"
    for host in ("127.0.0.2", "127.0.0.3"):
        where = ["--host", host, "--webui-port", 0, "--work-dir", there.work / host]
        machine.start(host, *program, "--cores", 1, "--memory", "2g", *where, f"spark://127.0.0.1:{port}", **options)
    wait(lambda: machine.log("master").count("Registering worker") == 2, "the workers")
    return f"spark://127.0.0.1:{port}"


@pytest.fixture
def short_folder():
    """Sockets of Postgres need a short path."""
    folder = tempfile.mkdtemp(prefix="lance-")
    yield Path(folder)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def machine(tmp_path):
    machine = Machine(tmp_path)
    yield machine
    machine.stop()


@pytest.fixture(params=["moto", "radosgw"])
def lake(request):
    """A bucket of an S3-compatible server: its address and the options for it."""
    if request.param == "moto":
        s3 = request.getfixturevalue("s3")
        yield s3.uri, s3.storage_options
        return
    missing = radosgw.missing_programs()
    if missing:
        pytest.skip(f"apt install ceph-mon ceph-osd radosgw: {', '.join(missing)} missing")
    folder = tempfile.mkdtemp(prefix="rgw-", dir="/tmp")
    gateway = radosgw.RadosGateway(Path(folder))
    gateway.create_bucket("lake")
    yield "s3://lake", gateway.storage_options
    gateway.stop()
    shutil.rmtree(folder)


def ask(port, query, **variables):
    body = json.dumps({"query": query, "variables": variables}).encode()
    request = Request(f"http://127.0.0.1:{port}/graphql", body, {"Content-Type": "application/json"})
    with urlopen(request, timeout=60) as answer:  # noqa: S310 ours
        return json.load(answer)["data"]


@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.skipif(os.environ.get("LANCE_TESTS") != "deep", reason="starts a database, a cluster and Dagster")
@pytest.mark.skipif(shutil.which("initdb") is None, reason="needs Postgres")
def test_the_topology_runs(short_folder, machine, lake):
    pytest.importorskip("dagster_postgres", reason="make test-deploy installs it")
    ensure_java()
    postgres = start_postgres(machine, short_folder)
    there = installed(machine)
    ports = {name: free_port() for name in ("INGEST", "REPORTS", "webserver")}
    address, options = lake
    environment = {
        **there.variables,
        **{f"POSTGRES_{key}": value for key, value in {"HOST": "127.0.0.1", "PORT": str(postgres)}.items()},
        **dict.fromkeys(["POSTGRES_USER", "POSTGRES_PASSWORD", "POSTGRES_DB"], "dagster"),
        **{f"{name}_HOST": "127.0.0.1" for name in ("INGEST", "REPORTS")},
        **{f"{name}_PORT": str(ports[name]) for name in ("INGEST", "REPORTS")},
        "LAKE_ROOT": f"{address}/tables",
        "LAKE_ENDPOINT": options["aws_endpoint"],
        "LAKE_ACCESS_KEY": options["aws_access_key_id"],
        "LAKE_SECRET_KEY": options["aws_secret_access_key"],
        "SPARK_DRIVER_HOST": "127.0.0.1",
    }
    environment["SPARK_MASTER"] = start_spark(machine, there, environment)
    settings = {"env": environment, "cwd": None if there.prefix else there.home}
    for name in ("ingest", "reports"):
        port = ports[name.upper()]
        code = ["--working-directory", there.locations, "--python-file", there.locations / f"{name}.py"]
        served = ["code-server", "start", "--host", "127.0.0.1", "--port", port, *code]
        machine.start(name, *there.program("dagster"), *served, port=port, **settings)
    machine.start("daemon", *there.program("dagster-daemon"), "run", "--workspace", "workspace.yaml", **settings)
    served = ["--host", "127.0.0.1", "--port", ports["webserver"], "--workspace", "workspace.yaml"]
    machine.start("webserver", *there.program("dagster-webserver"), *served, port=ports["webserver"], **settings)

    def run(location, job, **tags):
        where = {"repositoryLocationName": location, "repositoryName": "__repository__", "jobName": job}
        metadata = {"tags": [{"key": key.replace("_", "/"), "value": value} for key, value in tags.items()]}
        started = ask(ports["webserver"], START, p={"selector": where, "executionMetadata": metadata})["launchRun"]
        run_id = started["run"]["runId"]

        def status():
            return ask(ports["webserver"], STATUS, id=run_id)["runOrError"]["status"]

        wait(lambda: status() in {"SUCCESS", "FAILURE", "CANCELED"}, job, seconds=300)
        assert status() == "SUCCESS", machine.log(location) + machine.log("daemon")

    for month in ("2026-01", "2026-02"):
        run("ingest", "load", dagster_partition=month)
    run("reports", "report")
    table = lance_core.dataset(f"{address}/tables/totals.lance", storage_options=options)
    rows = sorted(table.to_table().to_pylist(), key=lambda row: row["month"])
    assert [(row["month"], row["orders"]) for row in rows] == [("2026-01", 1000), ("2026-02", 1000)]
    counted = subprocess.run(
        ["psql", "-h", "127.0.0.1", "-p", str(postgres), "-U", "dagster", "-tAc", "SELECT count(*) FROM runs"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert int(counted.stdout) == 3
    assert "Registering app" in machine.log("master")
