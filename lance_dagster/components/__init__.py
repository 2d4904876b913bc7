"""Dagster components: the same objects, declared in YAML."""

from lance_dagster.components.maintenance import LanceMaintenanceComponent

__all__ = ["LanceMaintenanceComponent"]
