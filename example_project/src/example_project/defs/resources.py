"""Storage of the tables, and the Spark session that all assets share."""

import dagster as dg

from example_project import settings
from example_project.tables import ROOT
from lance_dagster import LanceIOManager, LanceResource, SparkSessionResource

# Small, for a laptop. A cluster needs only other values here.
SPARK = SparkSessionResource(
    app_name="example_project",
    master="local[2]",
    conf={
        "spark.driver.host": "localhost",  # the machine's own address may change or be behind a firewall
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={settings.PROJECT / 'log4j2.properties'}",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    },
)


@dg.definitions
def resources() -> dg.Definitions:
    """One process per run: its steps share one Spark session."""
    return dg.Definitions(
        resources={
            "io_manager": LanceIOManager(root=ROOT, spark=SPARK, preview_rows=5),
            "lance": LanceResource(root=ROOT),
            "spark": SPARK,
        },
        executor=dg.in_process_executor,
    )
