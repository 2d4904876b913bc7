"""Schemas that change: which fields there are after columns were added, altered or dropped. Pure.

Field ids stay with their columns; a column whose values are written anew, such as a cast one, gets a new id at its old
place. Source: section "Schema Evolution" of the table format, and what pylance 14.0.2 commits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lance_core.common.frozen import frozen, replace
from lance_core.common.hints import did_you_mean
from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.format.arrow_kinds import is_bytes, is_text
from lance_core.format.schema import Field, Schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from lance_core.format.table.manifest import Manifest

_RESERVED = ("_rowid", "_rowaddr", "_rowoffset", "_row_created_at_version", "_row_last_updated_at_version")
_SPLIT_LISTS = ("list", "list.struct")
_MAP_FIELDS = 2
_ALTERATION_KEYS = ("path", "name", "nullable", "data_type")


def next_field_id(manifest: Manifest) -> int:
    """Return the id of the next new field: larger than all in the schema and in the data files."""
    return max(manifest.schema.max_id, manifest.fragments.highest_field_id) + 1


def new_fields(schema: Schema, columns: pa.Schema, first_id: int) -> Schema:
    """Fields for new top-level columns.

    Args:
        schema: Schema of the table.
        columns: The new columns.
        first_id: Id of the first new field.

    Raises:
        InvalidInputError: No columns, or a name that is taken, reserved, empty or has a dot.
        UnsupportedError: A type that Lance cannot hold.
    """
    names = columns.names
    problems = [f"column {name!r} exists already" for name in names if name in schema.names]
    problems += [f"column {name!r} occurs twice" for name in sorted(set(names)) if names.count(name) > 1]
    problems += [problem for name in names if (problem := _name_problem(name))]
    if not names:
        problems = ["there are no columns to add"]
    if problems:
        raise InvalidInputError(f"{'; '.join(problems)}; nothing was written")
    return Schema.from_arrow(columns.remove_metadata(), first_id)


def _name_problem(name: str) -> str:
    if not name or "." in name:
        return f"{name!r} cannot be the name of a column: it is empty or has a dot"
    return f"the name {name!r} is reserved" if name in _RESERVED else ""


def with_null_fields(schema: Schema, columns: pa.Schema, first_id: int, *, allows_children: bool) -> Schema:
    """Return the schema with new columns that are null in all rows, and new fields in structs that are there already.

    Args:
        schema: Schema of the table.
        columns: New columns; a column whose name is taken brings the fields that are new in its structs, at any depth
            of structs and lists.
        first_id: Id of the first new field.
        allows_children: Files of the table's version can lack fields of a struct.

    Raises:
        InvalidInputError: A field that is not nullable, or exists already.
        UnsupportedError: A type that Lance cannot hold, or new fields in a struct where files cannot lack them.
    """
    by_name = {field.name: field for field in schema.fields}
    fresh = [column for column in columns if column.name not in by_name]
    added = new_fields(schema, pa.schema(fresh), first_id) if fresh else Schema(())
    _check_nullable(added.fields)
    next_id = max(added.max_id, first_id - 1) + 1
    for arrow in columns:
        old = by_name.get(arrow.name)
        if old is None:
            continue
        by_name[arrow.name], next_id = _with_fields_inside(old, arrow.type, next_id, arrow.name)
        if not allows_children:
            raise UnsupportedError(f"cannot add fields to column {arrow.name!r}: that needs data files of version 2.2")
    return replace(schema, fields=(*(by_name[field.name] for field in schema.fields), *added.fields))


def _with_fields_inside(parent: Field, kind: pa.DataType, next_id: int, path: str) -> tuple[Field, int]:
    """Return a field that exists already with new fields in its structs; ``kind`` has these and what leads to them."""
    if parent.is_packed:
        raise UnsupportedError(f"cannot add fields to the packed struct {path!r}")
    if parent.logical_type == "struct" and pa.types.is_struct(kind) and not parent.is_blob:
        return _with_children(parent, kind, next_id, path)
    if parent.logical_type in _SPLIT_LISTS and pa.types.is_list(kind):
        child = parent.children[0]
        child, next_id = _with_fields_inside(child, kind.value_type, next_id, f"{path}.{child.name}")
        return replace(parent, children=(child,)), next_id
    if parent.children and pa.types.is_nested(kind):
        raise UnsupportedError(f"cannot add fields to {path!r}, which is a {parent.logical_type}; nothing was written")
    raise InvalidInputError(f"column {path!r} exists already; nothing was written")


def _with_children(parent: Field, kind: pa.StructType, next_id: int, path: str) -> tuple[Field, int]:
    children = {child.name: child for child in parent.children}
    for new in kind:
        inner = f"{path}.{new.name}"
        old = children.get(new.name)
        if old is None:
            made = Schema.from_arrow(pa.schema([new]), next_id).fields[0]
            _check_nullable([made], f"{path}.")
            children[new.name], next_id = made, max(field.id for field in made.walk()) + 1
        else:
            children[new.name], next_id = _with_fields_inside(old, new.type, next_id, inner)
    return replace(parent, children=tuple(children.values())), next_id


def _check_nullable(fields: Iterable[Field], prefix: str = "") -> None:
    for field in fields:
        if not field.nullable:
            raise InvalidInputError(f"column '{prefix}{field.name}' must be nullable, since it is null in all rows")


@frozen(kw_only=True)
class Cast:
    """A column to be written anew in another type.

    Attributes:
        path: Dotted path of the column as it is named now.
        names: The steps of that path.
        target: The new type.
        field: The new field, at the bottom of structs and lists that hold nothing else.
    """

    path: str
    names: tuple[str, ...]
    target: pa.DataType
    field: Field


@frozen(kw_only=True)
class Altered:
    """Result of alterations of a schema.

    Attributes:
        schema: The new schema.
        casts: Columns to be written anew.
        tightened: Paths, as named now, of columns that may have no nulls any more.
    """

    schema: Schema
    casts: tuple[Cast, ...]
    tightened: tuple[str, ...]


# --------------------------------------------------------------------------------------------------------- by path


def find_path(schema: Schema, path: str) -> tuple[Field, ...]:
    """Return the fields from the top-level column to the one at a dotted path.

    Raises:
        InvalidInputError: There is no such field.
    """
    fields, rest, chain = schema.fields, path, list[Field]()
    while True:
        match = next((field for field in fields if rest == field.name or rest.startswith(f"{field.name}.")), None)
        if match is None:
            names = [field.name for field in fields]
            hint = did_you_mean(rest.split(".", 1)[0], names)
            raise InvalidInputError(f"there is no column {path!r}; the columns are: {', '.join(names)}.{hint}")
        chain.append(match)
        if rest == match.name:
            return tuple(chain)
        fields, rest = match.children, rest[len(match.name) + 1 :]


def changed_fields(schema: Schema, change: Callable[[Field], Field | None]) -> Schema:
    """Return the schema with each field replaced by what ``change`` makes of it, children first; None drops it."""

    def walk(field: Field) -> Field | None:
        children = tuple(walked for child in field.children if (walked := walk(child)) is not None)
        return change(field if children == field.children else replace(field, children=children))

    return replace(schema, fields=tuple(changed for field in schema.fields if (changed := walk(field)) is not None))


# ------------------------------------------------------------------------------------------------------- altering


def altered(schema: Schema, alterations: Sequence[Mapping[str, Any]], first_id: int) -> Altered:
    """Rename, cast, or change whether nulls are allowed.

    Args:
        schema: Schema of the table.
        alterations: Dicts with ``path`` and any of ``name``, ``nullable`` and ``data_type``.
        first_id: Id of the first new field.

    Raises:
        InvalidInputError: Unknown keys or paths, a name that is taken.
        UnsupportedError: A cast between types that have nothing to do with one another.
    """
    changes: dict[int, Mapping[str, Any]] = {}
    new_ids: dict[int, int] = {}
    tightened: list[str] = []
    for alteration in alterations:
        _check_alteration(alteration)
        *above, last = find_path(schema, alteration["path"])
        if last.id in changes:
            raise InvalidInputError(f"column {alteration['path']!r} is altered twice")
        changes[last.id] = alteration
        if alteration.get("nullable") is False and last.nullable:
            if any(parent.logical_type != "struct" for parent in above):
                raise UnsupportedError(
                    f"column {alteration['path']!r} must stay nullable, since it is inside a list or map"
                )
            tightened.append(alteration["path"])
        target = alteration.get("data_type")
        if target is not None and not target.equals(last.to_arrow().type):
            whole = next((parent for parent in above if not _can_be_split(parent)), None)
            if whole is not None:
                raise UnsupportedError(
                    f"cannot cast {alteration['path']!r}, which is inside {whole.name!r}, a "
                    f"{whole.logical_type}. Write column {above[0].name!r} again as a whole"
                )
            if any(inner.extension_name for inner in last.walk()):
                raise UnsupportedError(f"cannot cast {alteration['path']!r}, which has an extension type")
            check_castable(alteration["path"], last.to_arrow().type, target)
            new_ids[last.id] = first_id
            first_id += sum(1 for _ in _made(last, alteration, 0).walk())
    after = changed_fields(schema, lambda alteration: _altered_field(alteration, changes, new_ids))
    _check_siblings(after.fields, "")
    casts = [_cast_of(schema, old, changes[old]["data_type"], _lonely(after, new)) for old, new in new_ids.items()]
    return Altered(schema=after, casts=tuple(casts), tightened=tuple(tightened))


def _cast_of(schema: Schema, field_id: int, target: pa.DataType, field: Field) -> Cast:
    names = tuple(step.name for step in _steps_to(schema, field_id))
    return Cast(path=".".join(names), names=names, target=target, field=field)


def _steps_to(schema: Schema, field_id: int) -> tuple[Field, ...]:
    """Return the fields from the top-level column to the one with an id."""

    def walk(field: Field) -> tuple[Field, ...]:
        if field.id == field_id:
            return (field,)
        below = next((path for child in field.children if (path := walk(child))), ())
        return (field, *below) if below else ()

    return next(walked for field in schema.fields if (walked := walk(field)))


def _check_alteration(changes: Mapping[str, Any]) -> None:
    unknown = [key for key in changes if key not in _ALTERATION_KEYS]
    if unknown or "path" not in changes:
        raise InvalidInputError(
            "an alteration must be a dict with 'path' and any of 'name', 'nullable' and 'data_type', not "
            f"{dict(changes)}"
        )
    name = changes.get("name")
    if name is not None and _name_problem(name):
        raise InvalidInputError(_name_problem(name))


def _altered_field(field: Field, changes: Mapping[int, Mapping[str, Any]], new_ids: Mapping[int, int]) -> Field:
    change = changes.get(field.id)
    if change is None:
        return field
    after = replace(
        field,
        name=change.get("name") or field.name,
        nullable=field.nullable if change.get("nullable") is None else bool(change["nullable"]),
    )
    return _made(after, change, new_ids[field.id]) if field.id in new_ids else after


def _made(original: Field, change: Mapping[str, Any], new_id: int) -> Field:
    """Return the field in its new type, with new ids for it and all below it."""
    arrow = pa.field(original.name, change["data_type"], nullable=original.nullable)
    made = Schema.from_arrow(pa.schema([arrow]), new_id).fields[0]
    # all but the type and what follows from it stays as it is
    return replace(
        original,
        id=made.id,
        logical_type=made.logical_type,
        children=made.children,
        encoding=made.encoding,
        dictionary=None,
    )


def _lonely(schema: Schema, field_id: int) -> Field:
    """Return the field with an id, at the bottom of structs and lists that hold nothing else."""

    def keep(field: Field) -> Field | None:
        if field.id == field_id:
            return field
        children = tuple(child_kept for child in field.children if (child_kept := keep(child)) is not None)
        return replace(field, children=children) if children else None

    return next(pruned for field in schema.fields if (pruned := keep(field)) is not None)


def _check_siblings(fields: Sequence[Field], path: str) -> None:
    names = [field.name for field in fields]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidInputError(
            f"two columns would have the same name: {', '.join(repr(path + name) for name in twice)}"
        )
    for field in fields:
        _check_siblings(field.children, f"{path}{field.name}.")


def without_columns(schema: Schema, paths: Sequence[str], first_id: int, *, version: str) -> Altered:
    """Drop columns, or fields inside of structs, lists and maps. What is left without fields is dropped, too.

    A packed struct that loses some of its fields has to be written anew: pylance 14.0.2 does not look at which fields a
    file holds, so it would read other values where a file holds more of them than the schema.

    Args:
        schema: Schema of the table.
        paths: Names or dotted paths.
        first_id: Id of the first new field.
        version: Version of the table's data files.

    Raises:
        InvalidInputError: There is no such column, no column would be left, or a map would lose its keys or values.
    """
    if isinstance(paths, str) or not paths:
        raise InvalidInputError("'columns' must be a list of names")
    doomed: set[int] = set()
    for path in paths:
        *above, last = find_path(schema, path)
        if any(field.is_blob for field in above):
            raise InvalidInputError(f"cannot drop {path!r}, which is part of a blob. Drop the whole column")
        doomed.add(last.id)
    before = {field.id: field for field in schema.walk()}

    def keep(field: Field) -> Field | None:
        is_emptied = bool(before[field.id].children) and not field.children
        return None if field.id in doomed or is_emptied else field

    left = changed_fields(schema, keep)
    if not left.fields:
        raise InvalidInputError("cannot drop all columns: a table needs at least one")
    _check_maps(left)
    if version == "0.1":  # its files have a column for each field, and no packed structs
        return Altered(schema=left, casts=(), tightened=())
    changed = [
        field for field in left.walk() if field.is_packed and len(field.children) < len(before[field.id].children)
    ]
    return _rewritten(left, [_rewritable(_steps_to(left, field.id), version) for field in changed], first_id)


def _check_maps(schema: Schema) -> None:
    for field in schema.walk():
        if field.logical_type == "map" and len(field.children[0].children) < _MAP_FIELDS:
            raise InvalidInputError(f"cannot drop the keys or values of map {field.name!r}. Drop the whole column")


def _rewritable(path: Sequence[Field], version: str) -> Field:
    """Return the innermost field around the last one that can be written anew alone."""
    if version == "2.0":  # structs and lists have columns of their own, which two files cannot both hold
        return path[0]
    return next((step for step in path[:-1] if not _can_be_split(step)), path[-1])


def _can_be_split(parent: Field) -> bool:
    """Return whether the fields inside of a field may lie in different files of a fragment.

    pylance 14.0.2 reads this for structs and lists, not for large lists, fixed-size lists and maps.
    """
    return parent.logical_type in ("struct", *_SPLIT_LISTS) and not parent.is_leaf


def _rewritten(left: Schema, fields: Sequence[Field], first_id: int) -> Altered:
    """The schema with new ids for some fields and all below them, which are to be written anew as they are there."""
    made: dict[int, Field] = {}
    for field in fields:
        if field.id not in made:
            made[field.id] = _with_ids(field, first_id)
            first_id += sum(1 for _ in field.walk())
    after = changed_fields(left, lambda field: made.get(field.id, field))
    casts = [_cast_of(left, old, new.to_arrow().type, _lonely(after, new.id)) for old, new in made.items()]
    return Altered(schema=after, casts=tuple(casts), tightened=())


def _with_ids(column: Field, first_id: int) -> Field:
    """Return the field with new ids for it and all below it."""
    children: list[Field] = []
    next_id = first_id + 1
    for child in column.children:
        children.append(_with_ids(child, next_id))
        next_id += sum(1 for _ in child.walk())
    return replace(column, id=first_id, children=tuple(children))


def check_castable(path: str, source: pa.DataType, target: pa.DataType) -> None:
    """Refuse casts other than those within integers, floats, decimals, texts, binaries, days and times, and lists.

    Raises:
        UnsupportedError: Types that have nothing to do with one another.
    """
    if not _is_castable(source, target):
        raise UnsupportedError(f"cannot cast column {path!r} from {source} to {target}")


_FAMILIES: tuple[Callable[[pa.DataType], bool], ...] = (
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    is_text,
    is_bytes,
    lambda kind: pa.types.is_date(kind) or pa.types.is_timestamp(kind),
    pa.types.is_time,
    pa.types.is_duration,
)


def _is_castable(source: pa.DataType, target: pa.DataType) -> bool:
    if source.equals(target):
        return True
    if pa.types.is_integer(source) and (pa.types.is_floating(target) or pa.types.is_decimal(target)):
        return True
    if any(is_of_family(source) and is_of_family(target) for is_of_family in _FAMILIES):
        return True
    lists = (pa.types.is_list, pa.types.is_large_list)
    if any(is_a(source) for is_a in lists) and any(is_a(target) for is_a in lists):
        return _is_castable(source.value_type, target.value_type)
    is_vector = pa.types.is_fixed_size_list
    if is_vector(source) and is_vector(target):
        return source.list_size == target.list_size and _is_castable(source.value_type, target.value_type)
    return False
