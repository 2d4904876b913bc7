"""Lance tables as a Spark data source: no jar, no pandas, one commit for each write.

``register(spark)`` makes ``format("lance")`` known; ``read_lance`` and ``write_lance`` do it themselves and can say and
tell more than Spark's own functions.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lance_core.spark.archive import archive_lance_core, ship_lance_core
    from lance_core.spark.functions.columns import add_columns_lance
    from lance_core.spark.functions.distribute import compact_lance, execute_compaction_plan, run_tasks
    from lance_core.spark.functions.merge import LanceMergeBuilder, merge_lance
    from lance_core.spark.functions.modification import ChangeOptions
    from lance_core.spark.functions.modify import create_index_lance, create_zone_map_lance, delete_lance, update_lance
    from lance_core.spark.functions.nearest import nearest_lance
    from lance_core.spark.functions.read import read_lance, read_lance_changes
    from lance_core.spark.functions.result import CommitResult
    from lance_core.spark.functions.table import LanceOptimizeBuilder, LanceTable
    from lance_core.spark.functions.write import write_lance
    from lance_core.spark.java import ensure_java
    from lance_core.spark.session import recommended_conf, register

__all__ = [
    "ChangeOptions",
    "CommitResult",
    "LanceMergeBuilder",
    "LanceOptimizeBuilder",
    "LanceTable",
    "add_columns_lance",
    "archive_lance_core",
    "compact_lance",
    "create_index_lance",
    "create_zone_map_lance",
    "delete_lance",
    "ensure_java",
    "execute_compaction_plan",
    "merge_lance",
    "nearest_lance",
    "read_lance",
    "read_lance_changes",
    "recommended_conf",
    "register",
    "run_tasks",
    "ship_lance_core",
    "update_lance",
    "write_lance",
]

# Every worker imports this package on its way to the one module that it needs.
_HOMES = {
    "archive": ("archive_lance_core", "ship_lance_core"),
    "functions.columns": ("add_columns_lance",),
    "functions.distribute": ("compact_lance", "execute_compaction_plan", "run_tasks"),
    "java": ("ensure_java",),
    "functions.merge": ("LanceMergeBuilder", "merge_lance"),
    "functions.modification": ("ChangeOptions",),
    "functions.modify": ("create_index_lance", "create_zone_map_lance", "delete_lance", "update_lance"),
    "functions.nearest": ("nearest_lance",),
    "functions.read": ("read_lance", "read_lance_changes"),
    "functions.result": ("CommitResult",),
    "session": ("recommended_conf", "register"),
    "functions.table": ("LanceOptimizeBuilder", "LanceTable"),
    "functions.write": ("write_lance",),
}
_MODULES = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 belongs to what is late

    value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
