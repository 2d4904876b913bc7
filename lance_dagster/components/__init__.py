"""Dagster components: the same objects, declared in YAML."""

from lance_dagster.components.maintenance import LanceMaintenanceComponent
from lance_dagster.components.table import LanceTableComponent

__all__ = ["LanceMaintenanceComponent", "LanceTableComponent"]
