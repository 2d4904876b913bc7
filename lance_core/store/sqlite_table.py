"""Versions of datasets in an SQLite file: for writers on one machine, in any number of processes."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from lance_core.errors import CorruptDataError
from lance_core.store.version_table import VersionRow

if TYPE_CHECKING:
    from collections.abc import Generator

_TIMEOUT_S = 30.0
_MAX_VERSION = (1 << 63) - 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS lance_versions (
    base_uri TEXT NOT NULL, version INTEGER NOT NULL, path TEXT NOT NULL, size INTEGER NOT NULL,
    PRIMARY KEY (base_uri, version)
) WITHOUT ROWID
"""


class SqliteTable:
    """A table in a file that is created when it is first needed. Picklable; a connection lives for one call only.

    Args:
        path: Absolute path. Must lie on a local disk: SQLite's locks cannot be trusted on network file systems.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def __repr__(self) -> str:
        return f"SqliteTable({self._path!r})"

    def create(self, base: str, row: VersionRow, /) -> bool:
        """Create a row; False if the version has one."""
        with self._transaction() as database:
            values = (base, row.version, row.path, row.size)
            return database.execute("INSERT OR IGNORE INTO lance_versions VALUES (?, ?, ?, ?)", values).rowcount == 1

    def settle(self, base: str, row: VersionRow, /, *, staged: str) -> None:
        """Replace a row if its path is still ``staged``."""
        with self._transaction() as database:
            database.execute(
                "UPDATE lance_versions SET path = ?, size = ? WHERE base_uri = ? AND version = ? AND path = ?",
                (row.path, row.size, base, row.version, staged),
            )

    def find(self, base: str, version: int | None, /) -> VersionRow | None:
        """Return the row of a version, or of the newest one."""
        if not os.path.exists(self._path):  # noqa: PTH110 reading creates nothing
            return None
        query = "SELECT version, path, size FROM lance_versions WHERE base_uri = ? AND version = ?"
        values: tuple[str | int, ...] = (base, version or 0)
        if version is None:
            query = "SELECT version, path, size FROM lance_versions WHERE base_uri = ? ORDER BY version DESC LIMIT 1"
            values = (base,)
        elif version > _MAX_VERSION:
            return None
        with self._transaction() as database:
            values_read = database.execute(query, values).fetchone()
        return (
            None
            if values_read is None
            else VersionRow(version=values_read[0], path=str(values_read[1]), size=int(values_read[2]))
        )

    def remove(self, base: str, row: VersionRow, /) -> None:
        """Remove a row if its path is still the same."""
        with self._transaction() as database:
            database.execute(
                "DELETE FROM lance_versions WHERE base_uri = ? AND version = ? AND path = ?",
                (base, row.version, row.path),
            )

    @contextmanager
    def _transaction(self) -> Generator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self._path, timeout=_TIMEOUT_S, isolation_level=None)) as database:
                database.execute("BEGIN IMMEDIATE")
                database.execute(_SCHEMA)
                yield database
                database.execute("COMMIT")  # a connection that is closed before takes everything back
        except sqlite3.OperationalError as error:
            raise ConnectionError(f"{self._path}: {error}") from error
        except sqlite3.DatabaseError as error:
            raise CorruptDataError(f"the file of versions cannot be used: {error}", path=self._path) from error
