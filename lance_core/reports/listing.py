"""The tables below a folder."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from lance_core.errors import InvalidInputError
from lance_core.format.table.paths import VERSIONS_FOLDER
from lance_core.store.open import open_store
from lance_core.table.locations import objects_at_once

if TYPE_CHECKING:
    from collections.abc import Mapping

_MAX_THREADS = 16


def find_tables(root: str, storage_options: Mapping[str, str] | None = None, *, max_depth: int = 8) -> list[str]:
    """Find the tables below a folder, at any depth; one listing for each folder. Not in pylance.

    Args:
        root: Folder or address below a bucket.
        storage_options: Settings of the storage service.
        max_depth: Folders in each other, at most.

    Returns:
        Addresses of the tables in ascending order; nothing if the folder does not exist. Tables inside of tables are
        not looked for.

    Raises:
        InvalidInputError: The root is a bucket without a folder.
    """
    address = root.rstrip("/")
    parent, _, name = address.rpartition("/")
    if not name or parent.endswith(":/"):
        raise InvalidInputError("tables are found below a folder of a bucket, not in the bucket itself", path=root)
    store = open_store(parent or ("/" if address.startswith("/") else "."), storage_options)
    tables: list[str] = []
    folders = [name]
    with ThreadPoolExecutor(min(max(objects_at_once(store), 1), _MAX_THREADS)) as pool:
        for _ in range(max_depth + 1):
            listings = zip(folders, pool.map(store.names, folders), strict=True)
            folders = []
            for folder, names in listings:
                if VERSIONS_FOLDER in names:
                    tables.append(folder)
                else:
                    folders += [f"{folder}/{child}" for child in names]
    return sorted(f"{parent}/{table}" if parent or address.startswith("/") else table for table in tables)
