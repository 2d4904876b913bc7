"""Lineage of columns from Spark's plans, and lineage of tables as events of OpenLineage."""
