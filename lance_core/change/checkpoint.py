"""Checkpoints of a long computation of new columns, so that it can resume after an interruption.

A small SQLite file beside the work: the results of finished batches of the fragment being worked on, and the data
files of finished fragments. It belongs to one version of one table, one set of columns and one batch size.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lance_core.common.frozen import replace
from lance_core.errors import InvalidInputError
from lance_core.format.table.fragment import DataFile
from lance_core.format.table.paths import data_file_path

if TYPE_CHECKING:
    from lance_core.change.column_files import ColumnWriter, Transform
    from lance_core.store.base import Store

_TABLES = """
CREATE TABLE IF NOT EXISTS job (identity TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS files (fragment INTEGER PRIMARY KEY, file TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS batches (number INTEGER PRIMARY KEY, result BLOB NOT NULL);
"""


class Checkpoint:
    """The file, and the work it knows of.

    Args:
        path: Where the file is, or shall be.
        identity: What the work is; a file about other work is refused.

    Raises:
        InvalidInputError: No such file, or one about other work.
    """

    def __init__(self, path: str | Path, identity: str) -> None:
        self.path = Path(path)
        self._number = 0
        try:
            with closing(self._connect()) as connection, connection:
                connection.executescript(_TABLES)
                row = connection.execute("SELECT identity FROM job").fetchone()
                if row is None:
                    connection.execute("INSERT INTO job VALUES (?)", (identity,))
        except (sqlite3.Error, OSError) as error:
            raise InvalidInputError(f"'{path}' is not a checkpoint file: {error}") from error
        if row is not None and row[0] != identity:
            raise InvalidInputError(
                f"checkpoint '{path}' belongs to another computation ({row[0]}). Remove the file to start again"
            )

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path)

    def files(self, store: Store) -> dict[int, DataFile]:
        """Data files of finished fragments that are still there."""
        with closing(self._connect()) as connection:
            rows = connection.execute("SELECT fragment, file FROM files").fetchall()
        stored = {fragment: _file_from_json(text) for fragment, text in rows}
        names = set(store.names("data")) if stored else set[str]()
        return {number: file for number, file in stored.items() if data_file_path(file).rpartition("/")[2] in names}

    def save_file(self, fragment_id: int, file: DataFile) -> None:
        """A fragment is finished; the results of its batches are no longer needed."""
        with closing(self._connect()) as connection, connection:
            connection.execute("INSERT OR REPLACE INTO files VALUES (?, ?)", (fragment_id, json.dumps(asdict(file))))
            connection.execute("DELETE FROM batches")
        self._number = 0

    def begin_fragment(self) -> None:
        """Batches are counted from here on."""
        self._number = 0

    def remembering(self, transform: Transform) -> Transform:
        """Return the same transform, which does not compute again what it has computed before."""

        def apply(batch: pa.RecordBatch) -> pa.RecordBatch:
            number, self._number = self._number, self._number + 1
            with closing(self._connect()) as connection, connection:
                row = connection.execute("SELECT result FROM batches WHERE number = ?", (number,)).fetchone()
                if row is not None:
                    stored = pa.ipc.open_stream(row[0]).read_next_batch()
                    if stored.num_rows == batch.num_rows:
                        return stored
                made = transform.apply(batch)
                connection.execute("INSERT OR REPLACE INTO batches VALUES (?, ?)", (number, _to_bytes(made)))
            return made

        return replace(transform, apply=apply)

    def write_all(self, writer: ColumnWriter) -> None:
        """Write the columns of all fragments that are not finished yet."""
        fragments = list(writer.snapshot.manifest.fragments)
        writer.staged.update(self.files(writer.snapshot.store))
        for fragment in fragments:
            if fragment.id not in writer.staged:
                self.begin_fragment()
                self.save_file(fragment.id, writer.write(fragment))

    def remove(self) -> None:
        """The work is done."""
        self.path.unlink(missing_ok=True)


def _to_bytes(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return sink.getvalue().to_pybytes()


def _file_from_json(text: str) -> DataFile:
    values: dict[str, Any] = json.loads(text)
    lists = {name: tuple(values.pop(name)) for name in ("fields", "column_indices")}
    return DataFile(**lists, **values)
