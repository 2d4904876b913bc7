"""Config, free text and base paths of the next version: a pure part of `lance_core.table.apply`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from lance_core.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lance_core.format.base_path import BasePath
    from lance_core.format.manifest import Manifest
    from lance_core.format.operations import UpdateConfig, UpdateMap
    from lance_core.format.schema import Field, Schema

_Value = TypeVar("_Value", str, bytes)


def update_config(manifest: Manifest, operation: UpdateConfig) -> Manifest:
    """Change config, table metadata, schema metadata and field metadata.

    Raises:
        InvalidInputError: A field id that the schema does not have.
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


def add_bases(known: Iterable[BasePath], added: Iterable[BasePath], *, first_id: int = 1) -> tuple[BasePath, ...]:
    """Base paths with others behind them; those without an id (0) get the smallest free one from ``first_id`` on.

    Raises:
        InvalidInputError: Two of one id, name or address.
    """
    bases = list(known)
    ids = {base.id for base in bases}
    for base in added:
        number = base.id
        if not number:
            number = first_id
            while number in ids:
                number += 1
        if number in ids:
            raise InvalidInputError(f"there are two base paths with id {number}")
        if base.name is not None and any(base.name == other.name for other in bases):
            raise InvalidInputError(f"there are two base paths with name {base.name!r}")
        if any(base.path == other.path for other in bases):
            raise InvalidInputError(f"there are two base paths with address {base.path!r}")
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
    unknown = sorted(set(updates) - {one.id for one in schema.walk()})
    if unknown:
        raise InvalidInputError(f"the schema has no fields with ids {unknown}")

    def change(one: Field) -> Field:
        metadata = _updated(one.metadata, *_encoded(updates[one.id])) if one.id in updates else one.metadata
        return replace(one, metadata=metadata, children=tuple(change(child) for child in one.children))

    return replace(schema, fields=tuple(change(one) for one in schema.fields))
