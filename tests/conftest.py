"""Fixtures for all tests."""

import json
import os
import subprocess
import sys
import uuid
from dataclasses import dataclass
from pathlib import Path
from urllib.request import Request, urlopen

import pytest


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

    def requests(self):
        """Requests since the last call: (method, path and query)."""
        return [tuple(one) for one in self._post("requests", None)]

    def create_bucket(self, bucket):
        with urlopen(Request(f"{self.endpoint}/{bucket}", method="PUT"), timeout=30) as answer:  # noqa: S310 - ours
            assert answer.status == 200

    def _post(self, what, content):
        request = Request(f"{self.endpoint}/_test/{what}", json.dumps(content).encode(), method="POST")  # noqa: S310
        with urlopen(request, timeout=30) as answer:  # noqa: S310 - ours
            return json.load(answer)


@pytest.fixture(scope="session")
def jvm():
    """The one Spark context of this process; tests make sessions of their own in it.

    Two workers, and a task is tried four times before its job fails.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415 - only tests that start Spark pay for it

    from lance_core.spark import ensure_java, recommended_conf  # noqa: PLC0415 - likewise

    ensure_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    conf = {
        **recommended_conf(),
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "OFF",
    }
    session = SparkSession.builder.master("local[2,4]").appName("tests").config(map=conf).getOrCreate()
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
def s3_service():
    """An S3 service that lives as long as the tests do."""
    command = [sys.executable, "-W", "ignore", str(Path(__file__).with_name("s3_server.py"))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        yield S3Service(endpoint=process.stdout.readline().decode().strip())
        process.terminate()


@pytest.fixture
def s3(s3_service):
    """The service without faults and with a new, empty bucket: `s3.uri`."""
    bucket = f"bucket-{uuid.uuid4().hex}"
    s3_service._post("faults", [])
    s3_service.create_bucket(bucket)
    s3_service.requests()
    return S3Bucket(endpoint=s3_service.endpoint, uri=f"s3://{bucket}")


@dataclass(frozen=True, kw_only=True)
class S3Bucket(S3Service):
    uri: str
