"""Lance tables as a Spark data source: no jar, no pandas, one commit for each write.

``register(spark)`` makes ``format("lance")`` known; ``read_lance`` and ``write_lance`` do it themselves and can say and
tell more than Spark's own functions.
"""

from lance_core.spark.archive import archive_lance_core, ship_lance_core
from lance_core.spark.columns import add_columns_lance
from lance_core.spark.distribute import compact_lance, execute_compaction_plan, run_tasks
from lance_core.spark.java import ensure_java
from lance_core.spark.merge import LanceMergeBuilder, merge_lance
from lance_core.spark.modification import ChangeOptions
from lance_core.spark.modify import create_zone_map_lance, delete_lance, update_lance
from lance_core.spark.read import read_lance, read_lance_changes
from lance_core.spark.result import CommitResult
from lance_core.spark.session import recommended_conf, register
from lance_core.spark.write import write_lance

__all__ = [
    "ChangeOptions",
    "CommitResult",
    "LanceMergeBuilder",
    "add_columns_lance",
    "archive_lance_core",
    "compact_lance",
    "create_zone_map_lance",
    "delete_lance",
    "ensure_java",
    "execute_compaction_plan",
    "merge_lance",
    "read_lance",
    "read_lance_changes",
    "recommended_conf",
    "register",
    "run_tasks",
    "ship_lance_core",
    "update_lance",
    "write_lance",
]
