"""The writer behind ``df.write.format("lance")``."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from lance_core.spark.common.options import WriteOptions, parse_options
from lance_core.spark.writing.rows_job import RowsJob
from lance_core.spark.writing.sink import JobTarget, LanceWriter
from lance_core.spark.writing.write_plan import plan_write

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.types import StructType


def rows_writer(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> LanceWriter:
    """Return a writer for one write; checks everything that can be checked before any task runs.

    Args:
        options: As Spark hands them over.
        schema: Of the DataFrame.
        overwrite: Whether Spark's mode is overwrite.

    Raises:
        InvalidInputError: The DataFrame does not fit the table; no task has run yet.
    """
    plan = plan_write(parse_options(WriteOptions, options), schema, overwrite=overwrite)
    job_target = JobTarget(branch_address=plan.branch_address, job=uuid.uuid4())
    return LanceWriter(RowsJob(job_target=job_target, plan=plan, publishes=True))
