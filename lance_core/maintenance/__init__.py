"""Compaction, materialized deletions, clean-up."""
