"""Connect servers on free ports: Spark starts local ones on port 15002, so only one could run on a machine.

Programs call `take_free_port` before they make a session, and give it `FREE_PORT` as configuration.
"""

from pyspark.sql import SparkSession
from pyspark.sql.connect.client import DefaultChannelBuilder

FREE_PORT = {"spark.connect.grpc.binding.port": "0"}


def take_free_port():
    """Let clients in this process find the server that it starts."""
    DefaultChannelBuilder.default_port = staticmethod(_port)


def _port():
    service = "org.apache.spark.sql.connect.service.SparkConnectService$"
    return getattr(getattr(SparkSession._instantiatedSession._jvm, service), "MODULE$").localPort()
