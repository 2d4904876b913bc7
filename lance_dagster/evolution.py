"""Columns of a frame against those of its table: what fits, what is added, what is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from lance_core.common.hints import did_you_mean
from lance_core.common.late_module import LateModule
from lance_core.errors import CommitConflictError, InvalidInputError

if TYPE_CHECKING:
    import pyarrow as pa

    import lance_core
else:
    pa = LateModule("pyarrow")

SchemaRule = Literal["strict", "add", "overwrite"]

_ATTEMPTS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaChange:
    """Changes that a table and a frame need before the frame can be written.

    Args:
        target: The frame's columns in the table's order and types, new ones at the end; columns that it lacks too,
            unless ``is_merge``.
        added: New columns.
        dropped: Names of columns to drop.
        retyped: Name -> new type.
    """

    target: pa.Schema
    added: tuple[pa.Field, ...] = ()
    dropped: tuple[str, ...] = ()
    retyped: tuple[tuple[str, pa.DataType], ...] = ()

    @property
    def is_none(self) -> bool:
        """Return whether the table stays as it is."""
        return not (self.added or self.dropped or self.retyped)


def plan_change(frame: pa.Schema, table: pa.Schema, *, mode: SchemaRule, is_merge: bool = False) -> SchemaChange:
    """Fit a frame to a table.

    Args:
        frame: Columns of the frame, in types that a table can have.
        table: Columns of the table.
        mode: ``strict``: the same columns, in any order. ``add``: new ones are added to the table, nullable ones may
            be missing. ``overwrite``: the table gets the frame's columns and types.
        is_merge: Columns that the frame lacks keep their values.

    Raises:
        InvalidInputError: Columns or types that do not fit; names them.
    """
    missing = [column for column in table if column.name not in frame.names]
    extra = [column for column in frame if column.name not in table.names]
    common = [column for column in table if column.name in frame.names]
    if mode == "overwrite":
        retyped = tuple((c.name, frame.field(c.name).type) for c in common if frame.field(c.name).type != c.type)
        types = dict(retyped)
        remaining = [c.with_type(types.get(c.name, c.type)) for c in common]
        added = tuple(_nullable(column) for column in extra)
        dropped = tuple(column.name for column in missing)
        return SchemaChange(target=pa.schema([*remaining, *added]), added=added, dropped=dropped, retyped=retyped)
    needed = missing if mode == "strict" else [column for column in missing if not column.nullable]
    if needed or (extra and mode == "strict"):
        names = [column.name for column in needed], [column.name for column in extra if mode == "strict"]
        msg = (
            f"The data does not have the table's columns: missing {names[0]}, extra {names[1]}. "
            "Give it the same columns, or set the metadata 'schema_mode' to 'add' or 'overwrite'."
            f"{did_you_mean(extra[0].name, table.names) if extra else ''}"
        )
        raise InvalidInputError(msg)
    _check_case(extra, table)
    _check_types(frame, common)
    added = tuple(_nullable(column) for column in extra)
    remaining = common if is_merge else list(table)
    return SchemaChange(target=pa.schema([*remaining, *added], metadata=table.metadata), added=added)


def _check_case(added: list[pa.Field], table: pa.Schema) -> None:
    """Refuse new columns whose names differ from others in case only: SQL would take one for the other."""
    by_lower = {name.lower(): name for name in table.names}
    for column in added:
        other = by_lower.get(column.name.lower())
        if other is not None:
            raise InvalidInputError(
                f"The new column {column.name!r} differs from the table's column {other!r} only in case. "
                f"Did you mean {other!r}? Nothing was written."
            )


def _nullable(column: pa.Field) -> pa.Field:
    """Return rows that are there already have no value in it."""
    return column.with_nullable(True)  # noqa: FBT003 - pyarrow's way


def _check_types(frame: pa.Schema, table: list[pa.Field]) -> None:
    wrong = [
        f"{column.name!r} is {frame.field(column.name).type} in the data and {column.type} in the table"
        for column in table
        if not _fits(frame.field(column.name).type, column.type)
    ]
    if wrong:
        raise InvalidInputError(f"The data does not fit the table: {'; '.join(wrong)}. Nothing was written.")


def _fits(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether values of a type may become values of another; each one is still checked when it is converted."""
    if given == wanted or pa.types.is_null(given):
        return True
    given, wanted = (kind.value_type if pa.types.is_dictionary(kind) else kind for kind in (given, wanted))
    return _kind(given) == _kind(wanted)


def _kind(kind: pa.DataType) -> object:
    is_ = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return str(kind)
    if is_.is_integer(kind) or is_.is_floating(kind) or is_.is_decimal(kind):
        return "number"
    if is_.is_string(kind) or is_.is_large_string(kind) or is_.is_string_view(kind):
        return "text"
    if is_.is_binary(kind) or is_.is_large_binary(kind) or is_.is_binary_view(kind) or is_.is_fixed_size_binary(kind):
        return "binary"
    if is_.is_timestamp(kind):
        return ("timestamp", kind.tz is None)
    if is_.is_list(kind) or is_.is_large_list(kind) or is_.is_fixed_size_list(kind):
        return ("list", _kind(kind.value_type))
    if is_.is_struct(kind):
        return ("struct", frozenset((field.name, _kind(field.type)) for field in kind))
    if is_.is_map(kind):
        return ("map", _kind(kind.key_type), _kind(kind.item_type))
    for name in ("date", "time", "duration"):
        if getattr(is_, f"is_{name}")(kind):
            return name
    return str(kind)


def change_table(
    dataset: lance_core.LanceDataset, frame: pa.Schema, change: SchemaChange, *, mode: SchemaRule, is_merge: bool
) -> SchemaChange:
    """Give a table the columns of a frame; the dataset moves to the version that has them.

    A step of its own, before the data: done twice it changes nothing, so that it is safe to repeat.

    Args:
        dataset: The table.
        frame: Columns of the frame.
        change: What is missing.
        mode: As in ``plan_change``.
        is_merge: Likewise.

    Returns:
        What the frame needs now.

    Raises:
        InvalidInputError: Somebody else changed the columns meanwhile, so that the frame does not fit any more.
        CommitConflictError: Others changed the table again and again.
    """
    for attempt in range(_ATTEMPTS):
        try:
            _apply(dataset, change)
            return change
        except CommitConflictError:
            if attempt == _ATTEMPTS - 1:
                raise
            dataset.checkout_latest()
            change = plan_change(frame, dataset.schema, mode=mode, is_merge=is_merge)
    return change


def _apply(dataset: lance_core.LanceDataset, change: SchemaChange) -> None:
    if change.added:
        dataset.add_columns(list(change.added))
    if change.retyped:
        dataset.alter_columns(*({"path": name, "data_type": kind} for name, kind in change.retyped))
    if change.dropped:
        dataset.drop_columns(list(change.dropped))
