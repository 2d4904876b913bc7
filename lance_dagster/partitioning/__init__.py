"""Partitions of assets as rows of tables: selection, counts, changes of the division, retention.

Few modules, because reads, writes, checks and maintenance share them, and the room above is full.
"""
