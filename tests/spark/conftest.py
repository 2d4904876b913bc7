from importlib.util import find_spec
from pathlib import Path

import pytest

from lance_core.spark import register
from lance_core.spark.planner import install_planner
from lance_core.spark.reading.reader import LanceReader
from lance_core.spark.source import LanceDataSource
from lance_core.spark.writing.sink import LanceWriter

# Streaming reads need what pyspark 4.2 brought; that older versions are refused is tested in test_session.
collect_ignore = [] if find_spec("pyspark.sql.streaming.datasource") else ["test_streams.py", "test_stream_plan.py"]


@pytest.fixture(scope="session")
def spark(new_session):
    # A time zone far from UTC, and not by whole hours.
    session = new_session(**{"shuffle.partitions": "2", "session.timeZone": "America/St_Johns"})
    register(session)
    yield session
    assert not has_given_up(session), "a plan was not understood: Spark's log has a warning"


def has_given_up(session):
    """Return whether the planner rule left a plan as it was because of an error, which changes no result."""
    rule = install_planner(session, ())
    failed = rule.getClass().getDeclaredField("failed")
    failed.setAccessible(True)
    return failed.getBoolean(rule)


@pytest.fixture(scope="session")
def understands(spark):
    """Tells whether the planner rule has understood all plans so far."""
    return lambda: not has_given_up(spark)


@pytest.fixture(scope="session")
def swapped():
    """Makes a data source some methods of whose writers and readers are others.

    Classes made here are sent to Spark's processes by value.
    """

    def make(source=LanceDataSource, *, name=None, writer=(), reader=()):
        known = name or source.name()
        writer_class = type("Writer", (LanceWriter,), dict(writer))
        reader_class = type("Reader", (LanceReader,), dict(reader))

        class Swapped(source):
            @classmethod
            def name(cls):
                return known

            def writer(self, schema, overwrite):
                made = super().writer(schema, overwrite)
                made.__class__ = writer_class
                return made

            def reader(self, schema):
                made = super().reader(schema)
                made.__class__ = reader_class
                return made

        return Swapped

    return make


@pytest.fixture
def uri(tmp_path):
    return str(tmp_path / "a table")


@pytest.fixture
def data_files(uri):
    """Names of the files in the data folder, whether a version knows them or not."""

    def names():
        folder = Path(uri, "data")
        return sorted(file.name for file in folder.iterdir()) if folder.is_dir() else []

    return names
