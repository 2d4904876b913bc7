"""A driver that is killed while it commits; see test_cluster_faults.py.

Arguments: the table, ``write`` or ``merge``, and whether it dies ``before`` or ``after`` the commit.
"""

import os
import signal
import sys

from pyspark.sql import SparkSession

from lance_core import spark as lance
from lance_core.spark.functions import modification
from lance_core.spark.functions import write as write_module

uri, what, when = sys.argv[1:]


def dying(commit):
    def die(*arguments):
        if when == "after":
            commit(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)

    return die


def prepare_and_die(snapshot, work, options):
    if when == "after":
        commit_work(snapshot, work, options)
    else:
        work.prepare(snapshot)
    os.kill(os.getpid(), signal.SIGKILL)


lance.ensure_java()
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
builder = builder.config("spark.sql.shuffle.partitions", "2")
spark = builder.config("spark.driver.host", "127.0.0.1").config("spark.log.level", "ERROR").getOrCreate()
rows = spark.range(50, 150, numPartitions=2)
commit_work = modification.commit_work
write_module.publish = dying(write_module.publish)
modification.commit_work = prepare_and_die
if what == "write":
    lance.write_lance(rows.where("id >= 100"), uri, idempotency_key="k")
else:
    merge = lance.merge_lance(rows, uri, "id", idempotency_key="k")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
