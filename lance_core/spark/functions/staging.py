"""Run a job on the rows of a DataFrame and take over what its tasks staged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_core.errors import CommitOutcomeUnknownError, NotFoundError
from lance_core.spark.common.signed import OPTION, SignedSource, register_signing, signed
from lance_core.spark.common.worker_errors import without_traceback
from lance_core.spark.session import register
from lance_core.spark.writing.sink import LanceWriter
from lance_core.spark.writing.staged_transactions import load_staged_transaction

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from lance_core.format.table.transaction import Transaction
    from lance_core.spark.writing.sink import StagingJob


class StagingSource(SignedSource):
    """Hands the rows of a DataFrame to a job; not for users, who have `lance_core.spark.write_lance` and others."""

    title = "lance_staging"

    @without_traceback
    def writer(self, schema: StructType, overwrite: bool) -> LanceWriter:
        """Return the writer for the job in the options.

        Raises:
            InvalidInputError: There is no job, or somebody else made it.
        """
        del schema, overwrite
        return LanceWriter(self.job())


def run_staging(df: DataFrame, job: StagingJob, options: Mapping[str, str] | None = None) -> Transaction:
    """Let Spark's tasks stage the rows of a DataFrame.

    Args:
        df: The rows.
        job: What to do with them; its `finish` hands the result over.
        options: Options for the planner rule.

    Returns:
        What was handed over.

    Raises:
        CommitOutcomeUnknownError: Spark reports success, but nothing was handed over.
    """
    spark = df.sparkSession
    register(spark)
    name = register_signing(spark, StagingSource)
    store = job.job_target.open()
    writer = df.write.format(name).mode("append").options(**(options or {}))
    writer.option(OPTION, signed(job)).save()
    try:
        return load_staged_transaction(store, job.job_target.job)
    except NotFoundError as error:
        message = "Spark reports that the write succeeded, but what its tasks staged cannot be found"
        raise CommitOutcomeUnknownError(message, path=store.uri) from error
