"""Connect servers on free ports: Spark starts local ones on port 15002, so only one could run on a machine.

Programs call `take_free_port` before they make a session, and give it `SERVER` as configuration.
"""

from pyspark.sql import SparkSession
from pyspark.sql.connect.client import DefaultChannelBuilder

SERVER = {
    "spark.connect.grpc.binding.port": "0",
    # A few rows are read sooner than code for them is generated and compiled, as in `conftest.py`.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "2",
}


def take_free_port():
    """Let clients in this process find the server that it starts."""
    DefaultChannelBuilder.default_port = staticmethod(_port)


def _port():
    service = "org.apache.spark.sql.connect.service.SparkConnectService$"
    return getattr(getattr(SparkSession._instantiatedSession._jvm, service), "MODULE$").localPort()
