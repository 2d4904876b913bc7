"""Versions of tables as Dagster sees them: history, tags, branches, roll-back, sensors for new ones."""
