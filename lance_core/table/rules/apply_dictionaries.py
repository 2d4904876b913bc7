"""Dictionaries of tables of version 0.1: the manifest holds the values of each dictionary column, for all files.

pylance reads every file with the manifest's values, so that those of each file must be their beginning. Part of
`lance_core.table.rules.apply`, and pure like it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from lance_core.errors import CommitConflictError, InvalidInputError, UnsupportedError
from lance_core.format.dictionary_values import LegacyDictionary
from lance_core.format.file.file_version import LEGACY_FILE_VERSION
from lance_core.format.file.legacy_file import with_encodings
from lance_core.format.table.legacy_dictionaries import is_legacy_dictionary, place_dictionaries, with_values
from lance_core.format.table.operations import Overwrite, operation_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lance_core.format.schema import Field, Schema
    from lance_core.format.table.manifest import Manifest
    from lance_core.format.table.transaction import Transaction

StagedDictionaries: TypeAlias = "Mapping[int, Sequence[tuple[str, LegacyDictionary]]]"
"""By field id: logical type and dictionary of the field in each of the files that a commit brings."""


def legacy_schema(
    following: Manifest, before: Manifest, transaction: Transaction, staged: StagedDictionaries
) -> Schema:
    """Return the schema of a version with what only tables of version 0.1 have: encodings and dictionaries.

    Args:
        following: The version being made.
        before: The version it builds on.
        transaction: What is done.
        staged: By field id: logical type and dictionary of the field in each of the new files.

    Raises:
        CommitConflictError: Another commit appended other values to a dictionary.
        InvalidInputError: New files have dictionaries that cannot be one.
        UnsupportedError: Nothing tells the values of a dictionary column.
    """
    schema = following.schema
    if following.data_storage_version != LEGACY_FILE_VERSION:
        return with_values(schema, lambda _: None) if before.data_storage_version == LEGACY_FILE_VERSION else schema
    schema = with_encodings(schema)
    dictionary_fields = [field for field in schema.walk() if is_legacy_dictionary(field)]
    if not dictionary_fields:
        return schema
    by_field: dict[int, LegacyDictionary] = {}
    if not isinstance(transaction.operation, Overwrite):  # which may use ids again
        by_field = {field.id: field.values for field in before.schema.walk() if field.values is not None}

    def find(field: Field) -> LegacyDictionary:
        values = _joined(field, by_field.get(field.id), staged.get(field.id, ()), before, transaction)
        if values is not None:
            return values
        if len(following.fragments):
            raise UnsupportedError(
                f"field {field.name!r}: a dictionary column in a table of version 0.1 whose values are not known"
            )
        is_text = not pa.types.is_integer(field.to_arrow().type.value_type)
        return LegacyDictionary(0, b"", bytes(8) if is_text else None)

    return place_dictionaries(with_values(schema, find))[0]


def _joined(
    field: Field,
    previous: LegacyDictionary | None,
    staged: Sequence[tuple[str, LegacyDictionary]],
    before: Manifest,
    transaction: Transaction,
) -> LegacyDictionary | None:
    """Return the dictionary that all others are the beginning of; None if there is none at all."""
    for logical_type, _ in staged:
        if logical_type != field.logical_type:
            raise UnsupportedError(
                f"field {field.name!r} is {field.logical_type}, but a file has a dictionary column of {logical_type}"
            )
    staged_values = [dictionary for _, dictionary in staged]
    candidates = staged_values if previous is None else [previous, *staged_values]
    longest = max(candidates, key=lambda dictionary: dictionary.num_values, default=None)
    if longest is None or all(candidate.is_prefix_of(longest) for candidate in candidates):
        return longest
    if previous is not None and before.version > transaction.read_version and _are_one(staged_values):
        raise CommitConflictError(
            f"another commit appended other values to the dictionary of field {field.name!r}; read the newest version "
            "and do the work again",
            ours=operation_name(transaction.operation),
            version=before.version,
        )
    raise InvalidInputError(
        f"field {field.name!r}: the files of this commit have dictionaries that differ; those of all files of a table "
        "of version 0.1 are one. Write them with one call, cast the column to its values, or use file version 2.2"
    )


def _are_one(dictionaries: Sequence[LegacyDictionary]) -> bool:
    longest = max(dictionaries, key=lambda dictionary: dictionary.num_values)
    return all(dictionary.is_prefix_of(longest) for dictionary in dictionaries)
