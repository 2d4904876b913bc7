"""Lance tables as a Spark data source: no jar, no pandas, one commit for each write.

``register(spark)`` makes ``format("lance")`` known; ``read_lance`` and ``write_lance`` do it themselves and can say and
tell more than Spark's own functions.
"""

from lance_core.spark.distribute import compact_lance, run_tasks
from lance_core.spark.java import ensure_java
from lance_core.spark.read import read_lance
from lance_core.spark.result import CommitResult
from lance_core.spark.session import recommended_conf, register
from lance_core.spark.write import write_lance

__all__ = [
    "CommitResult",
    "compact_lance",
    "ensure_java",
    "read_lance",
    "recommended_conf",
    "register",
    "run_tasks",
    "write_lance",
]
