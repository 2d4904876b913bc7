"""Maintenance of tables: compaction, materialized deletions, clean-up, verification, repair."""
