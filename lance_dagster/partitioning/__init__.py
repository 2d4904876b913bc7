"""Partitions of assets as rows of tables: selection, counts, changes of the division, retention."""
