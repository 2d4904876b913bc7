"""Dagster components: the same objects, declared in YAML.

Few modules, one for each component: whoever declares nothing in YAML imports none of them.
"""

from lance_dagster.components.discovery import LanceDiscoveryComponent
from lance_dagster.components.indices import LanceIndexComponent
from lance_dagster.components.maintenance import LanceMaintenanceComponent
from lance_dagster.components.resources import LanceResourcesComponent
from lance_dagster.components.sensor import LanceSensorComponent
from lance_dagster.components.table import LanceTableComponent

__all__ = [
    "LanceDiscoveryComponent",
    "LanceIndexComponent",
    "LanceMaintenanceComponent",
    "LanceResourcesComponent",
    "LanceSensorComponent",
    "LanceTableComponent",
]
