"""Dagster objects for Lance tables: IO manager, resources, maintenance assets, checks.

defs = dg.Definitions(
    assets=[*assets, *build_maintenance_assets(assets)],
    resources={
        "io_manager": LanceIOManager(root="data", spark=(spark := SparkSessionResource())),
        "lance": LanceResource(root="data"),
        "spark": spark,
    },
)
"""

from importlib import import_module as _import_module
from importlib.metadata import version as _version
from typing import TYPE_CHECKING, Any

from dagster_shared.libraries import DagsterLibraryRegistry

if TYPE_CHECKING:
    from lance_dagster.checks import build_lance_checks
    from lance_dagster.components import (
        LanceDiscoveryComponent,
        LanceIndexComponent,
        LanceMaintenanceComponent,
        LanceResourcesComponent,
        LanceSensorComponent,
        LanceTableComponent,
    )
    from lance_dagster.definitions import check_definitions, describe_tables, lance_asset_metadata
    from lance_dagster.handlers import ArrowBridge, ReadRequest, TypeHandler, WriteRequest
    from lance_dagster.io_manager import LanceIOManager
    from lance_dagster.lineage.open_lineage import build_openlineage_sensor
    from lance_dagster.maintenance import (
        CleanupPolicy,
        CompactionPolicy,
        DeletionPolicy,
        ExecutionPolicy,
        IndexPolicy,
        MaintenanceAlert,
        MaintenanceConfig,
        build_index_assets,
        build_maintenance_alerts,
        build_maintenance_assets,
        build_maintenance_definitions,
        build_maintenance_job,
        build_maintenance_schedule,
        build_table_health,
        maintenance_needed,
    )
    from lance_dagster.partitioning.partition_change import build_partition_change_job
    from lance_dagster.partitioning.retention import RetentionPolicy, build_retention_asset, build_wipe_job
    from lance_dagster.recall import build_recall_check
    from lance_dagster.resource import LanceResource
    from lance_dagster.spark import SparkSessionResource
    from lance_dagster.table_checks import CheckRules, LanceChecks
    from lance_dagster.versions.branches import BranchConfig, build_branch_jobs, deployment_branch
    from lance_dagster.versions.observe import build_observable_table
    from lance_dagster.versions.rollback import build_rollback_job
    from lance_dagster.versions.sensors import build_table_sensor

__version__ = _version("lance-dagster")

__all__ = [
    "ArrowBridge",
    "BranchConfig",
    "CheckRules",
    "CleanupPolicy",
    "CompactionPolicy",
    "DeletionPolicy",
    "ExecutionPolicy",
    "IndexPolicy",
    "LanceChecks",
    "LanceDiscoveryComponent",
    "LanceIOManager",
    "LanceIndexComponent",
    "LanceMaintenanceComponent",
    "LanceResource",
    "LanceResourcesComponent",
    "LanceSensorComponent",
    "LanceTableComponent",
    "MaintenanceAlert",
    "MaintenanceConfig",
    "ReadRequest",
    "RetentionPolicy",
    "SparkSessionResource",
    "TypeHandler",
    "WriteRequest",
    "build_branch_jobs",
    "build_index_assets",
    "build_lance_checks",
    "build_maintenance_alerts",
    "build_maintenance_assets",
    "build_maintenance_definitions",
    "build_maintenance_job",
    "build_maintenance_schedule",
    "build_observable_table",
    "build_openlineage_sensor",
    "build_partition_change_job",
    "build_recall_check",
    "build_retention_asset",
    "build_rollback_job",
    "build_table_health",
    "build_table_sensor",
    "build_wipe_job",
    "check_definitions",
    "deployment_branch",
    "describe_tables",
    "lance_asset_metadata",
    "maintenance_needed",
]

DagsterLibraryRegistry.register("lance-dagster", __version__, is_dagster_package=False)

# Imported when they are asked for: whoever loads definitions rarely needs all, and each process of a run loads them.
_MODULES = {
    "versions.branches": ["BranchConfig", "build_branch_jobs", "deployment_branch"],
    "checks": ["build_lance_checks"],
    "components": [
        "LanceDiscoveryComponent",
        "LanceIndexComponent",
        "LanceMaintenanceComponent",
        "LanceResourcesComponent",
        "LanceSensorComponent",
        "LanceTableComponent",
    ],
    "definitions": ["check_definitions", "describe_tables", "lance_asset_metadata"],
    "handlers": ["ArrowBridge", "ReadRequest", "TypeHandler", "WriteRequest"],
    "io_manager": ["LanceIOManager"],
    "maintenance.alerts": ["MaintenanceAlert", "build_maintenance_alerts"],
    "maintenance.assets": ["MaintenanceConfig", "build_maintenance_assets"],
    "maintenance.conditions": ["maintenance_needed"],
    "maintenance.definitions": [
        "build_index_assets",
        "build_maintenance_definitions",
        "build_maintenance_job",
        "build_maintenance_schedule",
    ],
    "maintenance.execution": ["ExecutionPolicy"],
    "maintenance.health": ["build_table_health"],
    "maintenance.policies": ["CleanupPolicy", "CompactionPolicy", "DeletionPolicy", "IndexPolicy"],
    "versions.observe": ["build_observable_table"],
    "lineage.open_lineage": ["build_openlineage_sensor"],
    "partitioning.partition_change": ["build_partition_change_job"],
    "recall": ["build_recall_check"],
    "resource": ["LanceResource"],
    "partitioning.retention": ["RetentionPolicy", "build_retention_asset", "build_wipe_job"],
    "versions.rollback": ["build_rollback_job"],
    "versions.sensors": ["build_table_sensor"],
    "spark": ["SparkSessionResource"],
    "table_checks": ["CheckRules", "LanceChecks"],
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(_import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
