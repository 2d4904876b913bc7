"""Read the dictionaries of new data files of version 0.1, whose values go into the manifest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_core.format.file.file_version import LEGACY_FILE_VERSION
from lance_core.format.table.legacy_dictionaries import is_legacy_dictionary
from lance_core.format.table.operations import Merge, Overwrite
from lance_core.format.table.paths import data_file_path
from lance_core.table.publish import new_data_files, store_of_new_files

if TYPE_CHECKING:
    from lance_core.format.dictionary_values import LegacyDictionary
    from lance_core.format.table.manifest import Manifest
    from lance_core.format.table.operations import Operation
    from lance_core.store.base import Store
    from lance_core.table.rules.apply_dictionaries import StagedDictionaries


def staged_dictionaries(
    store: Store, operation: Operation, base: Manifest, *, data_storage_version: str | None = None
) -> StagedDictionaries:
    """Return the dictionaries in the files that an operation brings; opens no file of other tables.

    Args:
        store: The branch.
        operation: What is about to be committed.
        base: The version it builds on.
        data_storage_version: File version that an ``Overwrite`` switches the table to.

    Raises:
        CorruptDataError: A file is damaged.
    """
    is_overwrite = isinstance(operation, Overwrite)
    version = (data_storage_version if is_overwrite else None) or base.data_storage_version
    if version != LEGACY_FILE_VERSION:
        return {}
    schema = operation.schema if isinstance(operation, Merge | Overwrite) else base.schema
    wanted = {field.id for field in schema.walk() if is_legacy_dictionary(field)}
    by_field: dict[int, list[tuple[str, LegacyDictionary]]] = {}
    for file in new_data_files(operation, base) if wanted else ():
        ids = wanted.intersection(file.fields)
        if not ids:
            continue
        path = data_file_path(file)
        from lance_core.file.read.reader import DataFileReader  # noqa: PLC0415 whoever opens no file needs no decoder

        reader = DataFileReader(store_of_new_files(store, operation, base).reader(path), path=f"{store.uri}/{path}")
        for field_id, dictionary in reader.dictionaries(ids).items():
            by_field.setdefault(field_id, []).append(dictionary)
    return by_field
