"""Plan of a merge of a source into a table, checked against both before anything is read or written."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

import pyarrow as pa

from lance_core.change.ingest import fit_schema
from lance_core.common.frozen import frozen
from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.format.schema import Schema
from lance_core.scan.plan import plan_filter
from lance_core.sql.predicate import make_predicate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_core.format.schema import Field
    from lance_core.scan.plan import ScanPlan
    from lance_core.sql.predicate import Predicate

SOURCE, TARGET = "source", "target"
"""What the two sides of a merge are called in the condition of an update."""


class WhenMatched(Enum):
    """Treatment of rows that are in both."""

    KEEP = "DoNothing"
    UPDATE = "UpdateAll"
    FAIL = "Fail"
    DELETE = "Delete"


class WriteMode(Enum):
    """Way to write updated rows."""

    AUTO = "auto"
    REWRITE_ROWS = "rewrite_rows"
    REWRITE_COLUMNS = "rewrite_columns"


@frozen(kw_only=True)
class MergeOptions:
    """Treatment of matched and unmatched rows.

    Attributes:
        on: Columns that make up the key; None for the primary key that the schema declares.
        matched: What becomes of rows that are in both.
        condition: With `WhenMatched.UPDATE`: SQL text with the prefixes ``source.`` and ``target.``; None for all rows.
        inserts: Rows that are only in the source are added.
        deletes_others: Rows that are only in the table are deleted.
        delete_condition: Which of them, as SQL text; None for all.
        write_mode: How updated rows are written.
        within: Rows of the table to look at, as SQL text; all others are as if they were not there. None for all.
    """

    on: tuple[str, ...] | None
    matched: WhenMatched = WhenMatched.KEEP
    condition: str | None = None
    inserts: bool = False
    deletes_others: bool = False
    delete_condition: str | None = None
    write_mode: WriteMode = WriteMode.AUTO
    within: str | None = None


@frozen(kw_only=True)
class MergePlan:
    """A merge that fits a table and a source.

    Attributes:
        options: What to do.
        table: Schema of the table.
        fields: The table's fields that the source brings.
        on: Fields of the key.
        rest: Fields that updated rows keep from the table, whole or in parts.
        condition: Which matched rows are updated; over the struct columns ``source`` and ``target``.
        condition_target: Fields of the table that the condition reads.
        condition_source: Names of the source's columns that it reads.
        others: Which rows that are only in the table are deleted; None for all.
        rewrites_columns: Updated values go into new files of the same fragments.
        within: Which rows of the table are looked at; None for all.
    """

    options: MergeOptions
    table: Schema
    fields: Schema
    on: Schema
    rest: Schema
    condition: Predicate | None
    condition_target: Schema
    condition_source: tuple[str, ...]
    others: ScanPlan | None
    rewrites_columns: bool
    within: ScanPlan | None = None

    @property
    def given_field_ids(self) -> tuple[int, ...]:
        """Ids of the fields, with all inside of them, of which the source has the whole or a part."""
        names = set(self.fields.names)
        return tuple(inner.id for field in self.table.fields if field.name in names for inner in field.walk())


def plan_merge(options: MergeOptions, table: Schema, source: pa.Schema) -> MergePlan:
    """Check a merge.

    Args:
        options: What to do.
        table: Schema of the table.
        source: Arrow schema of the source.

    Raises:
        InvalidInputError: Nothing to do, keys or columns that do not fit.
        UnsupportedError: Types that cannot be keys, SQL that is not supported.
    """
    check_does_something(options)
    on = find_keys(options.on, table)
    given = Schema(tuple(field for field in table.fields if field.name in source.names), table.metadata)
    fields = fit_schema(source, table if options.inserts else given)
    absent = [name for name in on if name not in fields.names]
    if absent:
        raise InvalidInputError(f"the source lacks the key column {', '.join(map(repr, absent))}")
    condition, target, names = _plan_condition(options, table, fields)
    plan = MergePlan(
        options=options,
        table=table,
        fields=fields,
        on=table.select(on),
        rest=Schema(tuple(field for field in table.fields if _is_kept(field, source))),
        condition=condition,
        condition_target=target,
        condition_source=names,
        others=None if options.delete_condition is None else plan_filter(table, options.delete_condition),
        rewrites_columns=options.write_mode is WriteMode.REWRITE_COLUMNS,
        within=None if options.within is None else plan_filter(table, options.within),
    )
    if plan.rewrites_columns:
        _check_rewrites_columns(plan, source)
    return plan


def check_does_something(options: MergeOptions) -> None:
    """Refuse a merge that cannot change anything."""
    if options.matched is WhenMatched.KEEP and not options.inserts and not options.deletes_others:
        raise InvalidInputError("the merge has no action. Call one of the 'when_...' methods")


def find_keys(on: Sequence[str] | None, table: Schema) -> list[str]:
    """Return the names of the key's columns as the table spells them.

    Raises:
        InvalidInputError: No key, or unknown columns.
        UnsupportedError: A column that cannot be a key.
    """
    if not on:
        keys = [field for field in table.fields if field.unenforced_primary_key]
        on = [key_field.name for key_field in sorted(keys, key=lambda field: field.unenforced_primary_key_position)]
    if not on:
        raise InvalidInputError("the merge has no key. Pass 'on', or declare a primary key in the schema")
    names = list(dict.fromkeys(_spelled(name, table) for name in on))
    for name in names:
        kind = table.select([name]).fields[0].to_arrow().type
        if pa.types.is_nested(kind):
            raise UnsupportedError(
                f"cannot merge on {name!r}, which has type {kind}. Choose columns that hold single values"
            )
    return names


def _spelled(name: str, table: Schema) -> str:
    if name in table.names:
        return name
    folded = [other for other in table.names if other.lower() == name.lower()]
    if len(folded) != 1:
        raise InvalidInputError(
            f"cannot merge on {name!r}: the table has no such column; its columns are: {', '.join(table.names)}"
        )
    return folded[0]


def _is_kept(field: Field, source: pa.Schema) -> bool:
    """Return whether the source leaves the field, or something in it, as it is."""
    return field.name not in source.names or is_partial(source.field(field.name).type, field)


def is_partial(kind: pa.DataType, field: Field) -> bool:
    """Return whether a type lacks fields of a struct.

    Raises:
        UnsupportedError: They are missing inside a list.
    """
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if pa.types.is_struct(kind):
        types = {field.name: field.type for field in kind}
        return any(child.name not in types or is_partial(types[child.name], child) for child in field.children)
    if pa.types.is_nested(kind) and len(field.children) == 1 and is_partial(kind.field(0).type, field.children[0]):
        raise UnsupportedError(f"cannot update parts of the values of {field.name!r}. Pass whole values")
    return False


def _plan_condition(
    options: MergeOptions, table: Schema, fields: Schema
) -> tuple[Predicate | None, Schema, tuple[str, ...]]:
    if options.matched is not WhenMatched.UPDATE or options.condition is None:
        return None, Schema(()), ()
    sides = {SOURCE: list(fields.to_arrow()), TARGET: list(table.to_arrow())}
    schema = pa.schema([pa.field(name, pa.struct(columns), nullable=False) for name, columns in sides.items()])
    predicate = make_predicate(options.condition, schema)
    wanted = {
        side: [
            column.name
            for column in columns
            if any(_reads(path, f"{side}.{column.name}") for path in predicate.columns)
        ]
        for side, columns in sides.items()
    }
    whole = [side for side in sides if side in predicate.columns]
    if whole:
        raise InvalidInputError(
            f"the condition {options.condition!r} uses {whole[0]!r} as a value. Name a column, such as "
            f"'{whole[0]}.name'"
        )
    return predicate, table.select(wanted[TARGET]), tuple(wanted[SOURCE])


def _reads(path: str, column: str) -> bool:
    return path == column or path.startswith(f"{column}.")


def _check_rewrites_columns(plan: MergePlan, source: pa.Schema) -> None:
    options = plan.options
    reason = None
    if options.inserts:
        reason = "inserting rows adds rows"
    elif options.matched is not WhenMatched.UPDATE or options.deletes_others:
        reason = "it can only update rows"
    elif not plan.rest.fields:
        reason = "the source has all columns of the table"
    elif set(plan.fields.names) <= set(plan.on.names):
        reason = "the source has no column besides the key"
    elif any(_is_kept(field, source) for field in plan.fields.fields):
        reason = "the source has parts of a struct only"
    if reason is not None:
        raise InvalidInputError(
            f"write mode 'rewrite_columns' does not support this merge: {reason}. Use 'rewrite_rows'"
        )
