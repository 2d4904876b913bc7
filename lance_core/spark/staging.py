"""Run a job on the rows of a DataFrame and take over what its tasks staged.

Spark knows data sources by name for as long as a session lives, and whoever may write SQL in that session can give one
any options. The job is a pickle in such an option, and to unpickle something is to run it. So each job is signed with a
key of this process, which Spark gets inside of the registered class only, and nothing else is unpickled.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import pickle
import secrets
from typing import TYPE_CHECKING, ClassVar

from pyspark.sql.datasource import DataSource

from lance_core.errors import CommitOutcomeUnknownError, InvalidInputError, NotFoundError
from lance_core.spark.session import register
from lance_core.spark.sink import LanceWriter
from lance_core.spark.staged_transactions import load_staged_transaction
from lance_core.spark.worker_errors import without_traceback

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from lance_core.format.transaction import Transaction
    from lance_core.spark.sink import StagingJob

_JOB = "job"
_KEY = secrets.token_bytes(32)


class StagingSource(DataSource):
    """Hands the rows of a DataFrame to a job; not for users, who have `lance_core.spark.write_lance` and others.

    Attributes:
        key: Signs jobs; empty in a class that takes none.
    """

    key: ClassVar[bytes] = b""

    @classmethod
    def name(cls) -> str:
        """The name to give to ``format``: one for each key, so that processes which share a session do not meet."""
        return f"lance_staging_{hashlib.sha256(cls.key).hexdigest()[:16]}"

    @without_traceback
    def writer(self, schema: StructType, overwrite: bool) -> LanceWriter:
        """The writer for the job in the options.

        Raises:
            InvalidInputError: There is no job, or somebody else made it.
        """
        del schema, overwrite
        signature, _, text = self.options.get(_JOB, "").partition(".")
        if not self.key or not hmac.compare_digest(signature.encode(), _signature(self.key, text).encode()):
            raise InvalidInputError("The format 'lance_staging' is internal. Write with format 'lance'.")
        return LanceWriter(pickle.loads(base64.b64decode(text)))  # noqa: S301 signed by this process's driver


def signed_job(key: bytes, job: StagingJob) -> str:
    """The text of a job that a source with the same key takes."""
    text = base64.b64encode(pickle.dumps(job)).decode()
    return f"{_signature(key, text)}.{text}"


def signing_source(key: bytes) -> type[StagingSource]:
    """A source that takes jobs signed with a key; made here, so that Spark sends it by value, with the key."""
    return type("SigningSource", (StagingSource,), {"key": key})


def _signature(key: bytes, text: str) -> str:
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


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
    source = signing_source(_KEY)
    spark.dataSource.register(source)
    store = job.job_target.open()
    writer = df.write.format(source.name()).mode("append").options(**(options or {}))
    writer.option(_JOB, signed_job(_KEY, job)).save()
    try:
        return load_staged_transaction(store, job.job_target.job)
    except NotFoundError as error:
        message = "Spark reports that the write succeeded, but what its tasks staged cannot be found"
        raise CommitOutcomeUnknownError(message, path=store.uri) from error
