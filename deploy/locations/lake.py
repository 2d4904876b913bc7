"""The lake that all code locations share: where its tables are, and which Spark works on them."""

import os
from typing import Any

import dagster as dg

from lance_dagster import LanceIOManager, SparkSessionResource


def resources() -> dict[str, Any]:
    """Return the IO manager and the Spark session, by the environment of the process."""
    spark = SparkSessionResource(
        master=os.environ.get("SPARK_MASTER", "local[2]"),
        conf={
            "spark.driver.host": os.environ.get("SPARK_DRIVER_HOST", "localhost"),
            "spark.driver.bindAddress": "0.0.0.0",  # noqa: S104 executors are other containers
            "spark.ui.enabled": "false",
            "spark.cores.max": "2",
            "spark.executor.memory": "1g",
            "spark.executor.memoryOverhead": "1g",
        },
        stop_at_teardown=True,
    )
    options: dict[str, Any] = {
        "aws_access_key_id": dg.EnvVar("LAKE_ACCESS_KEY"),
        "aws_secret_access_key": dg.EnvVar("LAKE_SECRET_KEY"),
        "aws_region": os.environ.get("LAKE_REGION", "us-east-1"),
    }
    endpoint = os.environ.get("LAKE_ENDPOINT")
    if endpoint is not None:  # another service than AWS
        options |= {"aws_endpoint": endpoint, "allow_http": str(endpoint.startswith("http://")).lower()}
    manager = LanceIOManager(root=dg.EnvVar("LAKE_ROOT"), storage_options=options, spark=spark)
    return {"io_manager": manager, "spark": spark}
