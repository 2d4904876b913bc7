"""Run a job on the rows of a DataFrame and take over what its tasks staged."""

from __future__ import annotations

import base64
import pickle
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from lance_core.errors import CommitOutcomeUnknownError, InvalidInputError, NotFoundError
from lance_core.spark.handover import take_over
from lance_core.spark.session import register
from lance_core.spark.sink import LanceWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from lance_core.format.transaction import Transaction
    from lance_core.spark.sink import StagingJob

_JOB = "job"


class StagingSource(DataSource):
    """Hands the rows of a DataFrame to a job; not for users, who have `lance_core.spark.write_lance` and others."""

    @classmethod
    def name(cls) -> str:
        """The name to give to ``format``."""
        return "lance_staging"

    def writer(self, schema: StructType, overwrite: bool) -> LanceWriter:
        """The writer for the job in the options."""
        del schema, overwrite
        if _JOB not in self.options:
            raise InvalidInputError("lance_staging is no format for users; write with format lance.")
        return LanceWriter(pickle.loads(base64.b64decode(self.options[_JOB])))  # noqa: S301 see above


def run_staging(df: DataFrame, job: StagingJob) -> Transaction:
    """Let Spark's tasks stage the rows of a DataFrame.

    Args:
        df: The rows.
        job: What to do with them; its `finish` hands the result over.

    Returns:
        What was handed over.

    Raises:
        CommitOutcomeUnknownError: Spark reports success, but nothing was handed over.
    """
    spark = df.sparkSession
    register(spark)
    spark.dataSource.register(StagingSource)
    text = base64.b64encode(pickle.dumps(job)).decode()
    store = job.place.open()
    df.write.format("lance_staging").mode("append").option(_JOB, text).save()
    try:
        return take_over(store, job.place.job)
    except NotFoundError as error:
        message = "Spark reports that the write succeeded, but what its tasks staged cannot be found"
        raise CommitOutcomeUnknownError(message, path=store.uri) from error
