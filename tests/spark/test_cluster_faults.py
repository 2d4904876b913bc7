"""Faults that need more than one JVM: an executor that dies, two copies of a task that run at once, a killed driver.

Each starts its own cluster on this machine, which takes up to a minute; only with ``LANCE_TESTS=deep``. What can be
had without a cluster is in test_failures.py and test_write_faults.py, which always run.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest

import lance_core
from lance_core.spark import ensure_java, merge_lance, write_lance

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(600),
    pytest.mark.skipif(os.environ.get("LANCE_TESTS") != "deep", reason="starts a cluster of several JVMs"),
]

SPARK_HOME = Path(pyspark.__file__).parent
PROGRAM = Path(__file__).with_name("cluster_program.py")
DRIVER = Path(__file__).with_name("driver_program.py")


@pytest.fixture
def environment():
    ensure_java()
    return {
        **os.environ,
        "SPARK_HOME": str(SPARK_HOME),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


@pytest.fixture
def run(tmp_path, environment):
    def run(master, fault):
        command = [sys.executable, "-W", "ignore", str(PROGRAM), master, str(tmp_path), fault]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=environment, timeout=400, cwd=Path.cwd()
        )
        assert done.returncode == 0, done.stderr[-4000:]
        return json.loads((tmp_path / "seen.json").read_text())

    return run


@pytest.fixture
def cluster(tmp_path, environment):
    """A master and two workers that believe to be on different machines; its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    started = []

    def start(what, *arguments):
        log = (tmp_path / f"{what}{len(started)}.log").open("w+")
        command = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{what}", *arguments]
        settings = {**environment, "SPARK_DAEMON_MEMORY": "256m"}
        settings.pop("SPARK_LOCAL_IP")
        process = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, env=settings, cwd=tmp_path, start_new_session=True
        )
        started.append((process, log))
        return Path(log.name)

    master = start("master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
    for host in ("127.0.0.2", "127.0.0.3"):
        folder = tmp_path / "work" / host
        options = ["--host", host, "--cores", "1", "--memory", "1g", "--webui-port", "0", "--work-dir", str(folder)]
        start("worker.Worker", *options, f"spark://127.0.0.1:{port}")
    try:
        deadline = time.monotonic() + 120
        while len(re.findall("Registering worker", master.read_text())) < 2:
            assert time.monotonic() < deadline, master.read_text()
            time.sleep(0.2)
        yield f"spark://127.0.0.1:{port}"
    finally:
        for process, log in started:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            log.close()


def files_of(table):
    known = {file.path for one in table.get_fragments() for file in one.data_files()}
    return known, {path.name for path in Path(table.uri, "data").iterdir()}


def check(table, rows):
    """Each row once; whatever else is in the folder, clean-up takes."""
    assert sorted(table.to_table()["id"].to_pylist()) == list(range(rows))
    assert table.version == 1
    known, found = files_of(table)
    assert known <= found
    table.cleanup_old_versions(older_than=timedelta(0), delete_unverified=True, force=True)
    assert files_of(lance_core.dataset(table.uri)) == (known, known)


def test_an_executor_that_dies(run, tmp_path):
    seen = run("local-cluster[2,1,1024]", "kill")
    assert seen == {"version": 1, "rows": 8000, "again": False, "happened": ["killed"]}
    table = lance_core.dataset(tmp_path / "t")
    known, found = files_of(table)
    assert known == found, "the names of a dead attempt's files are known, so they are removed"
    check(table, 8000)


def test_two_copies_of_a_task_that_end_at_once(run, cluster, tmp_path):
    seen = run(cluster, "copy")
    happened = [name for name in seen.pop("happened") if name.startswith("attempt")]
    assert happened == ["attempt 0", "attempt 1"]
    assert seen == {"version": 1, "rows": 8000, "again": False}
    check(lance_core.dataset(tmp_path / "t"), 8000)


@pytest.mark.parametrize("what", ["write", "merge"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_driver_that_is_killed(spark, tmp_path, environment, what, when):
    """Killed between the tasks and the commit, or between the commit and the answer; then all is done again."""
    uri = str(tmp_path / "t")
    lance_core.write_dataset(pa.table({"id": range(100)}), uri, max_rows_per_file=50)
    command = [sys.executable, "-W", "ignore", str(DRIVER), uri, what, when]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=400)
    assert done.returncode == -signal.SIGKILL, done.stderr[-4000:]
    assert lance_core.dataset(uri).version == (1 if when == "before" else 2)

    rows = spark.range(50, 150, numPartitions=2)
    if what == "write":
        again = write_lance(rows.where("id >= 100"), uri, idempotency_key="k")
    else:
        merge = merge_lance(rows, uri, "id", idempotency_key="k")
        again = merge.when_matched_update_all().when_not_matched_insert_all().execute()
    assert (again.version, again.written) == (2, when == "before")
    table = lance_core.dataset(uri)
    assert sorted(table.to_table()["id"].to_pylist()) == list(range(150))
    table.cleanup_old_versions(older_than=timedelta(0), delete_unverified=True, force=True)
    known, found = files_of(lance_core.dataset(uri))
    assert known == found
    assert len(list(Path(uri, "_transactions").iterdir())) <= len(table.versions())
