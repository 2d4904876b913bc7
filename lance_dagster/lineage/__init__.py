"""Lineage of columns from Spark's plans, and lineage of tables as events of OpenLineage.

Few modules, because plans of Spark and events of OpenLineage concern no other room, and the room above is full.
"""
