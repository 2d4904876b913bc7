import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pyspark
import pytest
from pyspark.errors import AnalysisException, PySparkAttributeError
from pyspark.sql.types import StructType

import lance_core.spark
from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.spark import read_lance, recommended_conf, register, session, source, write_lance
from lance_core.spark.source import LanceDataSource

BATCH_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"


def test_an_old_pyspark_is_refused(monkeypatch):
    monkeypatch.setattr(pyspark, "__version__", "4.0.1")
    with pytest.raises(UnsupportedError, match=r"4\.1 or later, not 4\.0\.1"):
        register(SimpleNamespace())


class ClientWithLance:
    """A session, without a Spark context of its own, that has a data source of this name already."""

    @property
    def sparkContext(self):  # noqa: N802 Spark's name
        raise PySparkAttributeError("none")

    @property
    def dataSource(self):  # noqa: N802 Spark's name
        return self

    def register(self, _source):
        class Conflict(AnalysisException):
            def getCondition(self):  # noqa: N802 Spark's name
                return "DATA_SOURCE_ALREADY_EXISTS"

        raise Conflict("exists")


def test_another_source_of_this_name_is_reported(monkeypatch):
    monkeypatch.setattr(session, "find_spec", lambda _name: None)
    with pytest.raises(InvalidInputError, match="another data source called lance"):
        register(ClientWithLance())


def test_what_spark_has_found_by_itself_is_kept(monkeypatch):
    monkeypatch.setattr(session, "find_spec", lambda name: name)
    register(ClientWithLance())


def test_streaming_reads_need_a_newer_pyspark(monkeypatch):
    monkeypatch.setattr(source, "find_spec", lambda _name: None)
    with pytest.raises(UnsupportedError, match=r"pyspark 4\.2 or later"):
        LanceDataSource({"path": "t.lance"}).streamReader(StructType([]))


@pytest.mark.spark
def test_registering_again_is_harmless(spark, uri):
    register(spark)
    register(spark)
    assert write_lance(spark.range(1), uri).version == 1


@pytest.mark.spark
def test_workers_of_a_local_session_run_this_interpreter(spark, monkeypatch):
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "python3")
    monkeypatch.setenv("PYSPARK_PYTHON", "python3")
    register(spark)
    assert spark.sparkContext.pythonExec == "python3"  # as the user said
    monkeypatch.delenv("PYSPARK_PYTHON")
    register(spark)
    assert spark.sparkContext.pythonExec == sys.executable


@pytest.mark.spark
def test_a_thread_without_an_active_session_can_read(spark, uri):
    write_lance(spark.range(3), uri)
    counts = []
    thread = threading.Thread(target=lambda: counts.append(read_lance(spark, uri).count()))
    thread.start()
    thread.join()
    assert counts == [3]


@pytest.mark.parametrize("small_rows", [False, True])
def test_settings_are_texts(small_rows):
    assert all(isinstance(value, str) for value in recommended_conf(small_rows=small_rows).values())


def test_batches_keep_their_limit_unless_rows_are_said_to_be_small():
    assert recommended_conf(small_rows=True).items() - recommended_conf().items() == {(BATCH_BYTES, str(2**31 - 1))}
    assert BATCH_BYTES not in recommended_conf()


@pytest.mark.spark
def test_a_batch_of_small_rows_ends_at_no_number_of_bytes(spark, uri):
    """One setting of Spark limits the bytes of a batch, and one value of it stands for no limit."""
    rows = spark.range(0, 2000, numPartitions=1)
    before = spark.conf.get(BATCH_BYTES)
    try:
        spark.conf.set(BATCH_BYTES, "1000")
        limited = write_lance(rows, uri, max_bytes_per_file=1).num_files
        spark.conf.set(BATCH_BYTES, recommended_conf(small_rows=True)[BATCH_BYTES])
        assert write_lance(rows, uri, max_bytes_per_file=1).num_files == 1 < limited
    finally:
        spark.conf.set(BATCH_BYTES, before)


@pytest.mark.parametrize("needed", ["reading.reader", "writing.rows_job", "functions.fragment_work"])
def test_workers_do_not_load_what_only_some_need(needed):
    ours = [f"lance_core.spark.functions.{name}" for name in ("columns", "merge", "modify", "read", "write")]
    rare = ["dagster", "pandas", "fsspec", "sqlglot", "lance_core.optimize", *ours]
    if needed == "functions.fragment_work":
        rare.remove("lance_core.optimize")
    code = f"import sys, lance_core.spark.{needed}; print([name for name in {rare} if name in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path.cwd())
    assert answer.stdout.strip() == "[]"


def test_all_public_names_are_there():
    assert all(getattr(lance_core.spark, name).__name__ == name for name in lance_core.spark.__all__)
    assert set(lance_core.spark.__all__) <= set(dir(lance_core.spark))
    with pytest.raises(AttributeError, match="nope"):
        lance_core.spark.nope  # noqa: B018 its error is what is looked at
