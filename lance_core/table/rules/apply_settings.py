"""Config, free text and base paths of the next version: a pure part of `lance_core.table.rules.apply`."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, TypeVar

from lance_core.common.frozen import replace
from lance_core.errors import InvalidInputError
from lance_core.format.field_keys import (
    CLUSTERING_KEY_METADATA,
    PRIMARY_KEY_METADATA,
    clustering_key_position,
    is_primary_key,
    primary_key_position,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from lance_core.format.schema import Field, Schema
    from lance_core.format.table.base_path import BasePath
    from lance_core.format.table.manifest import Manifest
    from lance_core.format.table.operations import UpdateConfig, UpdateMap

_Value = TypeVar("_Value", str, bytes)


def update_config(manifest: Manifest, operation: UpdateConfig) -> Manifest:
    """Change config, table metadata, schema metadata and field metadata.

    Raises:
        InvalidInputError: A field id that the schema does not have, or a change of a declared key.
    """
    schema = manifest.schema
    if operation.schema_metadata_updates is not None:
        updates = _encoded(operation.schema_metadata_updates)
        schema = replace(schema, metadata=_updated(schema.metadata, *updates))
    if operation.field_metadata_updates:
        schema = _with_field_metadata(schema, operation.field_metadata_updates)
    config, table_metadata = manifest.config, manifest.table_metadata
    if operation.config_updates is not None:
        config = _updated(config, operation.config_updates.update_entries, operation.config_updates.replace)
    if operation.table_metadata_updates is not None:
        table_updates = operation.table_metadata_updates
        table_metadata = _updated(table_metadata, table_updates.update_entries, table_updates.replace)
    return replace(manifest, schema=schema, config=config, table_metadata=table_metadata)


def add_bases(existing: Iterable[BasePath], added: Iterable[BasePath]) -> tuple[BasePath, ...]:
    """Base paths with others behind them; those without an id (0) get the smallest free one.

    Raises:
        InvalidInputError: Two of one id, name or address.
    """
    bases = list(existing)
    ids = {base.id for base in bases}
    for base in added:
        number = base.id or next(free for free in itertools.count(1) if free not in ids)
        if number in ids:
            raise InvalidInputError(f"two base paths have the id {number}")
        if base.name is not None and any(base.name == other.name for other in bases):
            raise InvalidInputError(f"two base paths have the name {base.name!r}")
        if any(base.path == other.path for other in bases):
            raise InvalidInputError(f"two base paths have the address {base.path!r}")
        ids.add(number)
        bases.append(replace(base, id=number))
    return tuple(bases)


def _encoded(update: UpdateMap) -> tuple[dict[str, bytes | None], bool]:
    entries = {key: None if value is None else value.encode() for key, value in update.update_entries.items()}
    return entries, update.replace


def _updated(
    before: Mapping[str, _Value], entries: Mapping[str, _Value | None], starts_empty: bool
) -> dict[str, _Value]:
    merged: dict[str, _Value | None] = {**({} if starts_empty else before), **entries}
    return {key: value for key, value in merged.items() if value is not None}


def _with_field_metadata(schema: Schema, updates: Mapping[int, UpdateMap]) -> Schema:
    unknown = sorted(set(updates) - {field.id for field in schema.walk()})
    if unknown:
        raise InvalidInputError(f"the schema has no fields with ids {unknown}")

    def change(field: Field) -> Field:
        metadata = _updated(field.metadata, *_encoded(updates[field.id])) if field.id in updates else field.metadata
        return replace(field, metadata=metadata, children=tuple(change(child) for child in field.children))

    changed = replace(schema, fields=tuple(change(field) for field in schema.fields))
    return _with_keys(schema, changed, updates)


def _with_keys(before: Schema, changed: Schema, updates: Mapping[int, UpdateMap]) -> Schema:
    """Return the changed schema, whose fields belong to the keys that new metadata declares.

    A key that is declared once stays as it is: whoever relies on it would not learn of a change.
    """
    is_keyed = any(field.unenforced_primary_key for field in before.walk())
    is_clustered = any(field.unenforced_clustering_key_position for field in before.walk())

    def declare(field: Field) -> Field:
        update = updates.get(field.id)
        made = replace(field, children=tuple(declare(child) for child in field.children)) if field.children else field
        if update is None:
            return made
        if _declares(update, PRIMARY_KEY_METADATA, is_part=field.unenforced_primary_key):
            _check_declaration("primary", field, is_known=is_keyed, is_valid=is_primary_key(field.metadata))
            position = primary_key_position(field.metadata) or 0
            made = replace(made, unenforced_primary_key=True, unenforced_primary_key_position=position)
        if _declares(update, CLUSTERING_KEY_METADATA, is_part=field.unenforced_clustering_key_position > 0):
            position = clustering_key_position(field.metadata)
            _check_declaration("clustering", field, is_known=is_clustered, is_valid=position is not None)
            made = replace(made, unenforced_clustering_key_position=position or 0)
        return made

    return replace(changed, fields=tuple(declare(field) for field in changed.fields))


def _declares(update: UpdateMap, names: Collection[str], *, is_part: bool) -> bool:
    """Return whether an update says something of a key, if only by leaving it out."""
    return not update.update_entries.keys().isdisjoint(names) or (update.replace and is_part)


def _check_declaration(key: str, field: Field, *, is_known: bool, is_valid: bool) -> None:
    if is_known:
        raise InvalidInputError(
            f"field {field.name!r}: cannot change the {key} key of the table. Overwrite the table to declare another"
        )
    if not is_valid:
        raise InvalidInputError(f"field {field.name!r}: the metadata does not declare a {key} key")


def check_primary_key(before: Schema | None, following: Schema) -> None:
    """Refuse nullable fields in the primary key, which pylance does not open; those that are there already may stay.

    Args:
        before: Schema of the version before; None for a new table.
        following: Schema of the new version.

    Raises:
        InvalidInputError: Names the first of them.
    """
    if following is before:
        return
    nullable_before = () if before is None else _nullable_keys(before.fields)
    for name in _nullable_keys(following.fields):
        if name not in nullable_before:
            raise InvalidInputError(
                f"field {name!r} belongs to the primary key: it and its parents must not be nullable"
            )


def _nullable_keys(fields: Iterable[Field], *, prefix: str = "", is_nullable: bool = False) -> list[str]:
    """Names of the fields in the primary key that are nullable or lie in something nullable."""
    names: list[str] = []
    for field in fields:
        name, lies_in_nullable = f"{prefix}{field.name}", is_nullable or field.nullable
        if field.unenforced_primary_key and lies_in_nullable:
            names.append(name)
        names += _nullable_keys(field.children, prefix=f"{name}.", is_nullable=lies_in_nullable)
    return names
