"""New columns from a DataFrame: joined with the table by a key in Spark, written fragment by fragment.

Rows come to the tasks in the order of their addresses, all rows of a fragment to one task, so that a task holds a
batch at a time and writes one file for each fragment.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 everybody's name for it
from pyspark.sql.types import StructType

from lance_core.change.column_files import with_file
from lance_core.change.evolution import new_fields, next_field_id
from lance_core.change.stage import remove_staged
from lance_core.errors import CorruptDataError, InvalidInputError
from lance_core.file.write.writer import check_schema
from lance_core.format.schema import Schema
from lance_core.format.table.operations import DataReplacement, Merge
from lance_core.methods.arguments import file_version
from lance_core.scan.plan import ROW_ADDRESS
from lance_core.spark.common.conditions import quoted
from lance_core.spark.common.task_version import TaskVersion
from lance_core.spark.common.types import lance_schema
from lance_core.spark.functions.staging import run_staging
from lance_core.spark.writing.column_job import ColumnJob, as_fragments
from lance_core.table.naming import naming

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from lance_core.format.table.operations import Operation
    from lance_core.spark.functions.modification import Modification
    from lance_core.table.snapshot import Snapshot

_SHIFT = 32
_ROWS_PER_TASK = 1 << 20


@dataclass(slots=True, kw_only=True)
class ColumnJoin:
    """New columns on the way to their commit.

    Attributes:
        source: The DataFrame: the key and the new columns.
        on: Columns of the key.
        change: Where, and how to commit.
        attempts: How often it was worked out.
        operations: What the tasks have written.
    """

    source: DataFrame
    on: tuple[str, ...]
    change: Modification
    sees_new_rows: bool = False
    attempts: int = 0
    operations: list[Operation] = field(default_factory=list["Operation"])

    @classmethod
    def of(cls, source: DataFrame, on: str | Sequence[str] | None, change: Modification) -> ColumnJoin:
        """Check the columns of the key.

        Raises:
            InvalidInputError: There are none, or they are missing on one side.
        """
        names = (on,) if isinstance(on, str) else tuple(on or ())
        table = change.snapshot.manifest.schema.names
        missing = [name for name in names if name not in source.columns or name not in table]
        if not names or missing:
            raise InvalidInputError(
                "'on' must name columns of both the table and the DataFrame; missing: "
                f"{', '.join(missing) or 'none given'}"
            )
        return cls(source=source, on=names, change=change)

    def prepare(self, snapshot: Snapshot) -> Merge:
        """Join and write."""
        self.forget()
        self.attempts += 1
        new = StructType([field for field in self.source.schema if field.name not in self.on])
        with naming(snapshot.store):
            fields = new_fields(snapshot.manifest.schema, lance_schema(new), next_field_id(snapshot.manifest))
            version = file_version(None, snapshot)
            check_schema(fields, version=version)
        job = ColumnJob(
            job_target=replace(self.change.job_target, job=uuid.uuid4()),
            version=TaskVersion.whole(self.change.branch_address, snapshot),
            fields=fields,
            data_storage_version=version,
        )
        staged = run_staging(self._joined(snapshot, new.names), job).operation
        if not isinstance(staged, DataReplacement):
            raise CorruptDataError("Spark's tasks returned something other than columns", path=snapshot.store.uri)
        self.operations = [staged]
        return with_columns(snapshot, fields, [staged])

    def _joined(self, snapshot: Snapshot, names: Sequence[str]) -> DataFrame:
        keys = {name: f"_key{number}" for number, name in enumerate(self.on)}
        target = self.change.target(snapshot, self.on).select(
            ROW_ADDRESS, *(F.col(quoted(name)).alias(key) for name, key in keys.items())
        )
        source = self.source.select(
            *(F.col(quoted(name)).alias(f"_source{key}") for name, key in keys.items()),
            *(F.col(quoted(name)) for name in names),
        )
        matches = [target[key] == source[f"_source{key}"] for key in keys.values()]
        joined = target.join(source, matches, "left").select(ROW_ADDRESS, *(F.col(quoted(name)) for name in names))
        manifest = snapshot.manifest
        tasks = max(min(len(manifest.fragments), -(-manifest.num_rows // _ROWS_PER_TASK) * 2), 1)
        by_fragment = joined.repartition(tasks, F.shiftright(F.col(ROW_ADDRESS), _SHIFT))
        return by_fragment.sortWithinPartitions(ROW_ADDRESS)

    def forget(self) -> None:
        """Remove the files written so far."""
        store = self.change.snapshot.store
        for operation in self.operations:
            if isinstance(operation, DataReplacement):
                remove_staged(store, as_fragments(operation.replacements))
        self.operations = []


def with_columns(snapshot: Snapshot, fields: Schema, files: Sequence[DataReplacement]) -> Merge:
    """Return the change that puts files with new columns beside those there are.

    Args:
        snapshot: Version that the files were made for.
        fields: The new columns.
        files: A file for each fragment; rows of one without file have null.
    """
    before = snapshot.manifest.schema
    schema = Schema((*before.fields, *fields.fields), before.metadata)
    live = frozenset(field.id for field in schema.walk())
    made = {number: file for operation in files for number, file in operation.replacements}
    fragments = tuple(
        with_file(fragment, made[fragment.id], live) if fragment.id in made else fragment
        for fragment in snapshot.manifest.fragments
    )
    return Merge(fragments=fragments, schema=schema, preserves_nullability=True)
