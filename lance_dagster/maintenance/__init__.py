"""Compaction, materialization of deletions and clean-up as Dagster assets."""

from lance_dagster.maintenance.alerts import MaintenanceAlert, build_maintenance_alerts
from lance_dagster.maintenance.assets import MaintenanceConfig, build_maintenance_assets
from lance_dagster.maintenance.conditions import MaintenanceNeeded, maintenance_needed
from lance_dagster.maintenance.definitions import (
    build_index_assets,
    build_maintenance_definitions,
    build_maintenance_job,
    build_maintenance_schedule,
)
from lance_dagster.maintenance.execution import ExecutionPolicy
from lance_dagster.maintenance.health import build_table_health
from lance_dagster.maintenance.policies import CleanupPolicy, CompactionPolicy, DeletionPolicy, IndexPolicy

__all__ = [
    "CleanupPolicy",
    "CompactionPolicy",
    "DeletionPolicy",
    "ExecutionPolicy",
    "IndexPolicy",
    "MaintenanceAlert",
    "MaintenanceConfig",
    "MaintenanceNeeded",
    "build_index_assets",
    "build_maintenance_alerts",
    "build_maintenance_assets",
    "build_maintenance_definitions",
    "build_maintenance_job",
    "build_maintenance_schedule",
    "build_table_health",
    "maintenance_needed",
]
