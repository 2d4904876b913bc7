"""Merge a DataFrame into a table: Spark joins both by their keys, one commit has all changes.

The join runs where Spark wants it to, so that neither the driver nor one task holds the table or the DataFrame. Only
the columns that are needed are read of the table.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 everybody's name for it
from pyspark.sql.types import StructType

from lance_core.change.merging.merge_plan import find_keys
from lance_core.common.hints import joined_reasons
from lance_core.common.signatures import with_options
from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.scan.plan import plan_filter
from lance_core.spark.common.conditions import quoted
from lance_core.spark.common.names import adopt_names, find_name
from lance_core.spark.common.task_version import TaskVersion
from lance_core.spark.common.types import find_misfits
from lance_core.spark.functions.delta_names import refused
from lance_core.spark.functions.merge_lookup import CachedSource, candidate_rows
from lance_core.spark.functions.merge_matching import Matching, sides_of
from lance_core.spark.functions.modification import ChangeOptions, Modification
from lance_core.spark.functions.staged_work import StagedWork
from lance_core.spark.session import is_case_sensitive
from lance_core.spark.writing.blob_columns import CLAUSE, KeptBlobs, blob_columns, written_schema
from lance_core.spark.writing.merge_clauses import (
    SOURCE,
    TARGET,
    Action,
    Clause,
    When,
    action_of,
    changed_columns,
    check_clauses,
    clause_number,
    is_repeated,
    keeps,
    kept_columns,
    named_columns,
    new_value,
)
from lance_core.spark.writing.merge_job import ACTION, NUMBERS, REPEATED, ROW_ADDRESS, ROW_ID
from lance_core.table.naming import naming

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Unpack

    from pyspark.sql import Column, DataFrame

    from lance_core.format.schema import Schema
    from lance_core.format.table.operations import Update
    from lance_core.spark.common.conditions import Condition
    from lance_core.spark.functions.result import CommitResult
    from lance_core.table.snapshot import Snapshot


@with_options(ChangeOptions)
def merge_lance(
    df: DataFrame,
    uri: str,
    on: str | Sequence[str] | None = None,
    *,
    within: str | None = None,
    **options: Unpack[ChangeOptions],
) -> LanceMergeBuilder:
    """Update, insert and delete rows of a table by the rows of a DataFrame with the same keys, in one commit.

    Example:
        ``merge_lance(changes, uri, "id").when_matched_update_all().when_not_matched_insert_all().execute()``

    Args:
        df: The source.
        uri: Address of the dataset.
        on: Columns that make up the key; None for the primary key that the schema declares. Null matches nothing.
        within: SQL text over the columns of the table, as for ``LanceDataset.delete``: only these rows are looked at,
            all others neither match nor change, and it is an error if a row to write is not among them. None for all.
        **options: See `lance_core.spark.ChangeOptions`.
    """
    return LanceMergeBuilder(df, uri, on, within, options)


class LanceMergeBuilder:
    """A merge; `merge_lance` makes one. Each method changes the builder and returns it.

    Conditions and values are Spark SQL or columns of Spark, in which ``source.`` and ``target.``, or the aliases of
    both sides, stand before the names of columns. Of several clauses for the same rows, the first one whose condition
    is true counts. Each method has Delta's name as well, with Delta's arguments.
    """

    def __init__(
        self,
        df: DataFrame,
        uri: str,
        on: str | Sequence[str] | None,
        within: str | None,
        options: ChangeOptions,
        *,
        matching: Condition | None = None,
        target: str | None = None,
    ) -> None:
        self._df = df
        self._uri = uri
        self._sides = sides_of(df, target)
        keys = (on,) if isinstance(on, str) else tuple(on or ())
        self._matching = Matching(on=keys) if matching is None else Matching.of(matching, self._sides)
        self._within = within
        self._options = options
        self._clauses: list[Clause] = []

    def when_matched_update_all(self, condition: Condition | None = None) -> LanceMergeBuilder:
        """Update rows that are in both with the values of the source; columns that it lacks keep theirs."""
        return self._with(When.MATCHED, Action.UPDATE, condition)

    def when_matched_update(
        self, values: Mapping[str, Condition], condition: Condition | None = None
    ) -> LanceMergeBuilder:
        """Update some columns of rows that are in both."""
        return self._with(When.MATCHED, Action.UPDATE, condition, values)

    def when_matched_delete(self, condition: Condition | None = None) -> LanceMergeBuilder:
        """Delete rows that are in both; the source needs the columns of the key only."""
        return self._with(When.MATCHED, Action.DELETE, condition)

    def when_matched_fail(self) -> LanceMergeBuilder:
        """Do nothing at all, and raise an error, if a row is in both."""
        return self._with(When.MATCHED, Action.FAIL, None)

    def when_not_matched_insert_all(self, condition: Condition | None = None) -> LanceMergeBuilder:
        """Add rows that are only in the source; columns that it lacks are null."""
        return self._with(When.NOT_MATCHED, Action.INSERT, condition)

    def when_not_matched_insert(
        self, values: Mapping[str, Condition], condition: Condition | None = None
    ) -> LanceMergeBuilder:
        """Add rows made of those that are only in the source; other columns are null."""
        return self._with(When.NOT_MATCHED, Action.INSERT, condition, values)

    def when_not_matched_by_source_update(
        self, values: Mapping[str, Condition], condition: Condition | None = None
    ) -> LanceMergeBuilder:
        """Update some columns of rows that are only in the table."""
        return self._with(When.NOT_MATCHED_BY_SOURCE, Action.UPDATE, condition, values)

    def when_not_matched_by_source_delete(self, expr: Condition | None = None) -> LanceMergeBuilder:
        """Delete rows that are only in the table.

        Args:
            expr: Delete only rows for which this is true.
        """
        return self._with(When.NOT_MATCHED_BY_SOURCE, Action.DELETE, expr)

    def whenMatchedUpdate(  # noqa: N802 the name in Delta, as those of the following methods
        self,
        condition: Condition | None = None,
        set: Mapping[str, Condition] | None = None,  # noqa: A002 likewise
    ) -> LanceMergeBuilder:
        """As `when_matched_update`."""
        return self.when_matched_update(set or {}, condition)

    def whenNotMatchedInsert(  # noqa: N802
        self, condition: Condition | None = None, values: Mapping[str, Condition] | None = None
    ) -> LanceMergeBuilder:
        """As `when_not_matched_insert`."""
        return self.when_not_matched_insert(values or {}, condition)

    def whenNotMatchedBySourceUpdate(  # noqa: N802
        self,
        condition: Condition | None = None,
        set: Mapping[str, Condition] | None = None,  # noqa: A002
    ) -> LanceMergeBuilder:
        """As `when_not_matched_by_source_update`."""
        return self.when_not_matched_by_source_update(set or {}, condition)

    def whenNotMatchedBySourceDelete(self, condition: Condition | None = None) -> LanceMergeBuilder:  # noqa: N802
        """As `when_not_matched_by_source_delete`."""
        return self.when_not_matched_by_source_delete(condition)

    whenMatchedUpdateAll = when_matched_update_all  # noqa: N815
    whenMatchedDelete = when_matched_delete  # noqa: N815
    whenNotMatchedInsertAll = when_not_matched_insert_all  # noqa: N815
    withSchemaEvolution = refused("withSchemaEvolution")  # noqa: N815

    def execute(self) -> CommitResult:
        """Merge.

        Raises:
            InvalidInputError: Clauses, keys or columns that do not fit; nothing was written.
            CommitConflictError: Other commits got in the way each time.
            PySparkException: Several rows of the source for one of the table; a matching row that must not be there.
        """
        change = Modification("merge_lance", self._df.sparkSession, self._uri, self._options)
        if change.done is not None:
            return change.done
        table = change.snapshot.manifest.schema
        case_sensitive = is_case_sensitive(self._df.sparkSession)
        source = self._df if case_sensitive else _spelled_as(self._df, table)
        cached = CachedSource(source)
        work = MergeWork(
            source=source,
            cached=cached,
            matching=self._matching,
            sides=self._sides,
            within=self._within,
            clauses=tuple(self._clauses),
            change=change,
            sees_new_rows=any(clause.action is Action.INSERT for clause in self._clauses),
        )
        if not case_sensitive:
            work.adopt_names(table)
        try:
            done = change.commit(work)
        finally:
            cached.release()
        numbers = {f"num_{name}_rows": int(work.numbers[name]) for name in NUMBERS}
        return change.result("merge", done, work.operations, attempts=work.attempts, **numbers)

    def _with(
        self, when: When, action: Action, condition: Condition | None, values: Mapping[str, Condition] | None = None
    ) -> LanceMergeBuilder:
        self._clauses.append(Clause(when=when, action=action, condition=condition, values=values, names=self._sides))
        return self


@dataclass(slots=True, kw_only=True)
class MergeWork(StagedWork):
    """A merge on the way to its commit.

    Attributes:
        source: The DataFrame.
        cached: The same, for its keys.
        matching: How rows match.
        sides: The side that each qualifier of a column stands for.
        within: Rows of the table to look at; None for all.
        clauses: What to do.
    """

    source: DataFrame
    cached: CachedSource
    matching: Matching
    sides: Mapping[str, str]
    within: str | None
    clauses: tuple[Clause, ...]

    def prepare(self, snapshot: Snapshot) -> Update:
        """Join and write."""
        self.forget()
        self.attempts += 1
        table = snapshot.manifest.schema
        with naming(snapshot.store):
            on = () if self.matching.condition is not None else find_keys(self.matching.on, table)
            self._check(snapshot, on)
            return self.stage(
                snapshot,
                self._rows(snapshot, on),
                self._changed_field_ids(table),
                within=self.within,
                kept_blobs=self._kept_blobs(snapshot),
            )

    def adopt_names(self, table: Schema) -> None:
        """Spell the columns of the key and of the clauses as a table does."""
        self.matching = replace(self.matching, on=tuple(find_name(name, table.names) for name in self.matching.on))
        self.clauses = tuple(clause.spelled_as(table.names) for clause in self.clauses)

    def _check(self, snapshot: Snapshot, on: Sequence[str]) -> None:
        table = snapshot.manifest.schema
        source = self.source.columns
        check_clauses(self.clauses, table.names)
        if self.within is not None:
            plan_filter(table, self.within)
        missing = [name for name in on if name not in source]
        if missing:
            raise InvalidInputError(f"the DataFrame lacks the key column {', '.join(missing)}")
        takes_all = [
            clause
            for clause in self.clauses
            if clause.values is None and clause.action in {Action.INSERT, Action.UPDATE}
        ]
        if takes_all:
            self._check_source(snapshot)
        kept_columns(self.clauses, table.names, source)
        named = named_columns(self.clauses, table.names)
        blobs = [blob_column.name for blob_column in blob_columns(table) if blob_column.name in named]
        if blobs:
            raise UnsupportedError(f"conditions and values cannot read blob columns of the table ({', '.join(blobs)})")

    def _changed_field_ids(self, table: Schema) -> tuple[int, ...]:
        names = changed_columns(self.clauses, table.names, self.source.columns)
        return tuple(inner.id for field in table.fields if field.name in names for inner in field.walk())

    def _kept_blobs(self, snapshot: Snapshot) -> KeptBlobs | None:
        source = self.source.columns
        candidates = [
            (
                blob_column,
                tuple(number for number, clause in enumerate(self.clauses) if keeps(clause, blob_column.name, source)),
            )
            for blob_column in blob_columns(snapshot.manifest.schema)
        ]
        used = tuple(column for column in candidates if column[1])
        return (
            KeptBlobs(columns=used, version=TaskVersion.whole(self.change.branch_address, snapshot)) if used else None
        )

    def _check_source(self, snapshot: Snapshot) -> None:
        """All columns of the source go into the table, unless clauses say what others are for."""
        table = snapshot.manifest.schema.to_arrow()
        given = self.source.schema
        has_texts = any(clause.condition is not None or clause.values is not None for clause in self.clauses)
        known_columns = StructType([field for field in given if not has_texts or field.name in table.names])
        wanted = [field for field in table if field.name in known_columns.names]
        misfits = find_misfits(known_columns, table.empty_table().select([field.name for field in wanted]).schema)
        inserts = any(clause.action is Action.INSERT and clause.values is None for clause in self.clauses)
        lacking = [field.name for field in table if inserts and not field.nullable and field.name not in given.names]
        misfits += [f"column {name!r} is missing" for name in lacking]
        if misfits:
            raise InvalidInputError(
                f"The DataFrame does not fit the table: {joined_reasons(misfits)}; nothing was written"
            )

    def _rows(self, snapshot: Snapshot, on: Sequence[str]) -> DataFrame:
        """Return the rows to write or delete, with what becomes of them."""
        manifest = snapshot.manifest
        blobs = {blob_column.name for blob_column in blob_columns(manifest.schema)}
        source = self.source.columns
        joined = self._joined(snapshot, on)
        numbered = joined.withColumn(CLAUSE, clause_number(self.clauses)).where(F.col(CLAUSE).isNotNull())
        number = F.col(CLAUSE)
        ids = [ROW_ID] if manifest.uses_stable_row_ids else []
        values = [
            new_value(self.clauses, number, column, source, is_read=column.name not in blobs)
            for column in written_schema(manifest.schema, self.source.schema)
        ]
        which = [CLAUSE] if blobs else []
        action = action_of(self.clauses, number)
        is_wrong = (action == int(Action.INSERT)) & F.col(REPEATED)
        action = F.when(is_wrong, F.lit(int(Action.REPEATED)).cast("tinyint")).otherwise(action)
        rows = numbered.select(action.alias(ACTION), ROW_ADDRESS, *which, *ids, *values)
        # moved rows bring their ids, so they come before new ones
        return rows.sortWithinPartitions(F.col(ACTION) != int(Action.UPDATE)) if ids else rows

    def _joined(self, snapshot: Snapshot, on: Sequence[str]) -> DataFrame:
        manifest = snapshot.manifest
        names = manifest.schema.names
        columns = kept_columns(self.clauses, names, self.source.columns)
        matching = self.matching.names
        columns |= set(names) if matching is None else {find_name(name, names) for name in matching}
        # blobs come later, and not through Spark
        columns -= {blob_column.name for blob_column in blob_columns(manifest.schema)}
        read = [name for name in manifest.schema.names if name in columns or name in on]
        keys = {name: f"_{number}" for number, name in enumerate(on)}
        whole = self._candidates(snapshot, on, read)
        if whole is None:
            stable = manifest.uses_stable_row_ids
            whole = self.change.target(snapshot, read, with_row_id=stable, condition=self.within)
        ids = [ROW_ID] if manifest.uses_stable_row_ids else []
        target = whole.select(
            ROW_ADDRESS,
            *ids,
            *(F.col(quoted(name)).alias(f"_target{key}") for name, key in keys.items()),
            *self._structs(TARGET, read),
        )
        source = self.source.select(
            *(F.col(quoted(name)).alias(f"_source{key}") for name, key in keys.items()),
            *self._structs(SOURCE, self.source.columns),
        )
        repeated = None
        if not self.cached.has_distinct_keys:
            repeated = is_repeated(self.clauses, [F.col(f"_source{key}") for key in keys.values()])
        # Spark shuffles and sorts by the key for the join, too, and does both once.
        source = source.withColumn(REPEATED, F.lit(False) if repeated is None else repeated)  # noqa: FBT003 Spark's way
        matches = [source[f"_source{key}"] == target[f"_target{key}"] for key in keys.values()]
        if self.matching.condition is not None:
            matches = [self.matching.condition]
        return source.join(target, matches, self._kind_of_join())

    def _candidates(self, snapshot: Snapshot, on: Sequence[str], columns: Sequence[str]) -> DataFrame | None:
        """Return the rows of the table that may match, as far as indices tell; None if all have to be read."""
        if not on or any(clause.when is When.NOT_MATCHED_BY_SOURCE for clause in self.clauses):
            return None
        return candidate_rows(self.change, snapshot, self.cached, on, columns, within=self.within)

    def _structs(self, side: str, columns: Sequence[str]) -> list[Column]:
        """Return the columns of a side, under each of its names."""
        struct = F.struct(*(F.col(quoted(name)) for name in columns))
        return [struct.alias(name) for name, of in self.sides.items() if of == side]

    def _kind_of_join(self) -> str:
        asked = {clause.when for clause in self.clauses}
        if {When.NOT_MATCHED, When.NOT_MATCHED_BY_SOURCE} <= asked:
            return "full"
        if When.NOT_MATCHED in asked:
            return "left"
        return "right" if When.NOT_MATCHED_BY_SOURCE in asked else "inner"


def _spelled_as(source: DataFrame, table: Schema) -> DataFrame:
    """Return the DataFrame with its columns spelled as a table does."""
    names = adopt_names(source.schema, table.to_arrow()).names
    return source if names == source.columns else source.toDF(*names)
