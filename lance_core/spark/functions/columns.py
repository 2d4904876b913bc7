"""New columns for a table, made by Spark's tasks; the files that exist stay as they are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from lance_core.change.columns_work import ColumnsWork
from lance_core.change.evolution import new_fields, next_field_id
from lance_core.common.signatures import with_options
from lance_core.dataset import LanceDataset
from lance_core.errors import InvalidInputError
from lance_core.file.write.writer import check_schema
from lance_core.format.table.operations import DataReplacement
from lance_core.methods.arguments import file_version
from lance_core.methods.evolving import make_transform
from lance_core.spark.functions.column_join import ColumnJoin, with_columns
from lance_core.spark.functions.modification import ChangeOptions, Modification
from lance_core.table.naming import naming
from lance_core.udf import BatchUDF

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Unpack

    from pyspark.sql import SparkSession

    from lance_core.change.column_files import Transform
    from lance_core.format.schema import Schema
    from lance_core.format.table.operations import Operation
    from lance_core.spark.functions.fragment_work import DividedWork, Part
    from lance_core.spark.functions.result import CommitResult
    from lance_core.table.new_ids import NewIds
    from lance_core.table.snapshot import Snapshot


@with_options(ChangeOptions)
def add_columns_lance(
    spark: SparkSession,
    uri: str,
    transforms: Mapping[str, str] | DataFrame | Any,
    *,
    on: str | Sequence[str] | None = None,
    read_columns: Sequence[str] | None = None,
    batch_size: int | None = None,
    **options: Unpack[ChangeOptions],
) -> CommitResult:
    """Add columns; one task for each fragment, or a join in Spark, and one commit.

    If other commits add or change rows meanwhile, what is missing is made, too.

    Args:
        spark: The session.
        uri: Address of the dataset.
        transforms: A dict of column name to SQL expression over existing columns, or a function from record batch to
            batch of new columns, both as for ``LanceDataset.add_columns``; or a DataFrame with the new columns and
            those of ``on``.
        on: With a DataFrame: columns that both have; rows of the table without a partner get null.
        read_columns: What a function gets, all columns if None; also ``_rowid`` and ``_rowaddr``.
        batch_size: Rows that a function gets at a time.
        **options: See `lance_core.spark.ChangeOptions`.

    Raises:
        InvalidInputError: A name that is taken, an unknown column; several rows of the DataFrame for one of the table.
        CommitConflictError: Other commits changed rows or columns each time.
    """
    change = Modification("add_columns_lance", spark, uri, options)
    if change.done is not None:
        return change.done
    if isinstance(transforms, DataFrame):
        joined = ColumnJoin.of(transforms, on, change)
        done = change.commit(joined)
        return change.result("add columns", done, joined.operations, attempts=joined.attempts)
    if on is not None:
        raise InvalidInputError("'on' applies only to columns from a DataFrame. Leave it out")
    recipe = _Recipe(transforms=transforms, read_columns=read_columns, batch_size=batch_size)
    work = change.spark_work(recipe.plan, recipe.join, one_each=True)
    done = change.commit(work)
    return change.result("add columns", done, work.operations, attempts=work.attempts)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recipe:
    """Computation of the values of new columns."""

    transforms: Any
    read_columns: Sequence[str] | None
    batch_size: int | None

    def transform(self, snapshot: Snapshot) -> Transform:
        dataset = LanceDataset(snapshot.store.uri, snapshot=snapshot)
        made = make_transform(dataset, self.transforms, self.read_columns, self.batch_size)
        if made is None:
            raise InvalidInputError(
                f"'transforms' must be a dict of SQL, a function or a DataFrame, not {type(self.transforms).__name__}"
            )
        return made

    def fields(self, snapshot: Snapshot) -> tuple[Transform, Schema]:
        with naming(snapshot.store):
            transform = self.transform(snapshot)
            fields = new_fields(snapshot.manifest.schema, transform.schema, next_field_id(snapshot.manifest))
            check_schema(fields, version=file_version(None, snapshot))
            return transform, fields

    def plan(self, snapshot: Snapshot) -> Callable[[Snapshot, NewIds], DividedWork]:
        """Return the work of the tasks; all of them make the same types and ids."""
        transform, fields = self.fields(snapshot)
        recipe = self
        if callable(self.transforms):
            recipe = replace(self, transforms=BatchUDF(self.transforms, transform.schema))
        return partial(_adding, recipe, fields)

    def join(self, snapshot: Snapshot, parts: Sequence[Part]) -> Operation:
        """One change of all files."""
        files = [part.operation for part in parts if isinstance(part.operation, DataReplacement)]
        return with_columns(snapshot, self.fields(snapshot)[1], files)


def _adding(recipe: _Recipe, fields: Schema, snapshot: Snapshot, ids: NewIds) -> DividedWork:
    version = file_version(None, snapshot)
    return ColumnsWork(transform=recipe.transform(snapshot), fields=fields, data_storage_version=version, ids=ids)
