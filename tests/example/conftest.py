import warnings

import pytest


@pytest.fixture(scope="module", autouse=True)
def example_lake(tmp_path_factory):
    """The example's tables and files in a folder of their own."""
    with pytest.MonkeyPatch.context() as patch:
        lake = tmp_path_factory.mktemp("lake")
        patch.setenv("EXAMPLE_LAKE", str(lake))
        yield lake


@pytest.fixture(scope="module")
def spark():
    from pyspark.sql import SparkSession  # noqa: PLC0415 - only tests that start Spark pay for it

    conf = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2", "spark.sql.session.timeZone": "UTC"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pylance, if another test imported it, warns of every fork
        session = SparkSession.builder.master("local[2]").config(map=conf).getOrCreate()
    yield session
    session.stop()
