"""Installed as the top-level module ``pyspark_lance``: Spark finds the data source ``lance`` in it by itself.

The first time that a session is asked for a Python data source, Spark imports all top-level modules whose names begin
with ``pyspark_`` and registers what they call ``DefaultSource``.
"""

from lance_core.spark.source import LanceDataSource as DefaultSource

__all__ = ["DefaultSource"]
