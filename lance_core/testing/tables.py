"""A toy table on the real commit protocol: each "data file" is a list of int64, so that rows can be counted.

The metadata is real; only the data files are not Lance files. For tests of commits, clean-up and faults that need no
file reader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from lance_core.format.schema import Schema
from lance_core.format.table.fragment import DataFile, Fragment
from lance_core.format.table.operations import Append, Delete, Overwrite
from lance_core.format.table.paths import data_file_path
from lance_core.format.table.transaction import Transaction
from lance_core.table.rebase import load_deletions, write_deletions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lance_core.format.table.operations import Operation
    from lance_core.store.base import Store
    from lance_core.table.snapshot import Snapshot

SCHEMA = Schema.from_arrow(pa.schema([pa.field("value", pa.int64())]))


def stage_rows(store: Store, rows: Iterable[int], *, name: str) -> Fragment:
    """Write a toy data file.

    Args:
        store: Where the table lies.
        rows: Its rows.
        name: File name without suffix.
    """
    values = np.fromiter(rows, np.int64)
    file = DataFile(
        path=f"{name}.lance",
        fields=(0,),
        column_indices=(0,),
        file_major_version=2,
        file_minor_version=2,
        file_size_bytes=values.nbytes,
    )
    store.put(data_file_path(file), values.tobytes())
    return Fragment(id=0, files=(file,), physical_rows=len(values))


def read_rows(snapshot: Snapshot) -> list[int]:
    """Return all rows of a toy table, sorted."""
    rows: list[int] = []
    for fragment in snapshot.manifest.fragments:
        values = np.frombuffer(snapshot.store.get(data_file_path(fragment.files[0])), np.int64)
        deleted = load_deletions(snapshot.store, fragment)
        rows += [value for offset, value in enumerate(values.tolist()) if offset not in deleted]
    return sorted(rows)


def create(store: Store, rows: Iterable[int], *, uuid: str = "create") -> Transaction:
    """Return a transaction that creates a toy table."""
    return transaction(Overwrite(fragments=(stage_rows(store, rows, name=uuid),), schema=SCHEMA), 0, uuid=uuid)


def append(store: Store, rows: Iterable[int], *, read_version: int, uuid: str) -> Transaction:
    """Return a transaction that adds rows."""
    return transaction(Append(fragments=(stage_rows(store, rows, name=uuid),)), read_version, uuid=uuid)


def overwrite(store: Store, rows: Iterable[int], *, read_version: int, uuid: str) -> Transaction:
    """Return a transaction that replaces all rows."""
    operation = Overwrite(fragments=(stage_rows(store, rows, name=uuid),), schema=SCHEMA)
    return transaction(operation, read_version, uuid=uuid)


def delete(snapshot: Snapshot, rows: Iterable[int], *, uuid: str, new_id: Callable[[], int] = lambda: 1) -> Transaction:
    """Return a transaction that deletes the rows with these values."""
    wanted = set(rows)
    updated: list[Fragment] = []
    removed: list[int] = []
    for fragment in snapshot.manifest.fragments:
        values = np.frombuffer(snapshot.store.get(data_file_path(fragment.files[0])), np.int64).tolist()
        hits = BitMap([offset for offset, value in enumerate(values) if value in wanted])
        before = load_deletions(snapshot.store, fragment)
        if not hits - before:
            continue
        if len(hits | before) == fragment.physical_rows:
            removed.append(fragment.id)
            continue
        updated.append(_with_deletions(snapshot, fragment, hits | before, new_id))
    operation = Delete(updated_fragments=tuple(updated), deleted_fragment_ids=tuple(removed), predicate="toy")
    return transaction(operation, snapshot.version, uuid=uuid)


def transaction(operation: Operation, read_version: int, *, uuid: str) -> Transaction:
    """Return a transaction without properties."""
    return Transaction(read_version=read_version, uuid=uuid, operation=operation)


def _with_deletions(snapshot: Snapshot, fragment: Fragment, rows: BitMap, new_id: Callable[[], int]) -> Fragment:
    file, _ = write_deletions(snapshot.store, fragment.id, rows, read_version=snapshot.version, new_id=new_id)
    return Fragment(id=fragment.id, files=fragment.files, physical_rows=fragment.physical_rows, deletion_file=file)
