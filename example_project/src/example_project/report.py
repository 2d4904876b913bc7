"""A short text about the tables: what is in them, and what maintenance did."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import lance_core

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """One table at one moment.

    Args:
        rows: Rows of the newest version.
        version: The newest version.
        versions: Number of versions that can be read.
        tags: Number of tags.
        fragments: Fragments of the newest version.
        deleted: Rows that are deleted but still in the files.
        size: Bytes of the newest version's data.
        files: Data files and deletion files in the folder, also those that only older versions need.
        folder_size: Bytes of all files in the folder.
    """

    rows: int
    version: int
    versions: int
    tags: int
    fragments: int
    deleted: int
    size: int
    files: int
    folder_size: int


def read_state(uri: str) -> TableState:
    """Look at the table in a local folder."""
    table = lance_core.dataset(uri)
    fragments = table.get_fragments()
    files = [path for path in Path(uri).rglob("*") if path.is_file()]
    return TableState(
        rows=table.count_rows(),
        version=table.version,
        versions=len(table.versions()),
        tags=len(table.tags.list()),
        fragments=len(fragments),
        deleted=sum(fragment.num_deletions for fragment in fragments),
        size=table.table_statistics()["num_bytes"],
        files=sum(path.parent.name in {"data", "_deletions"} for path in files),
        folder_size=sum(path.stat().st_size for path in files),
    )


def read_states(root: str) -> dict[str, TableState]:
    """Return the state of every table below a folder, by name."""
    return {path.stem: read_state(str(path)) for path in sorted(Path(root).glob("*.lance"))}


def tables_text(states: Mapping[str, TableState]) -> str:
    """Return all tables, one per line."""
    header = ("table", "rows", "fragments", "size", "version", "versions kept", "tags", "files", "all files")
    return _columns(
        header,
        (
            (
                name,
                f"{state.rows:,}",
                state.fragments,
                _size(state.size),
                state.version,
                state.versions,
                state.tags,
                state.files,
                _size(state.folder_size),
            )
            for name, state in states.items()
        ),
    )


def maintenance_text(before: Mapping[str, TableState], after: Mapping[str, TableState]) -> str:
    """List the changes in the tables that changed, one per line."""
    header = ("table", "fragments", "deleted rows", "size", "versions kept", "files", "all files")
    return _columns(
        header,
        (
            (
                name,
                f"{old.fragments} -> {new.fragments}",
                f"{old.deleted:,} -> {new.deleted:,}",
                f"{_size(old.size)} -> {_size(new.size)}",
                f"{old.versions} -> {new.versions}",
                f"{old.files} -> {new.files}",
                f"{_size(old.folder_size)} -> {_size(new.folder_size)}",
            )
            for name, old in before.items()
            if (new := after[name]) != old
        ),
    )


def history_text(uri: str) -> str:
    """Return the versions of one table, one per line: what made them, how many rows they have, their tags."""
    table = lance_core.dataset(uri)
    tags = {tag["version"]: name for name, tag in table.tags.list().items()}
    header = ("version", "made by", "rows", "tag")
    return _columns(
        header,
        (
            (
                version,
                type(table.read_transaction(version).operation).__name__,
                f"{lance_core.dataset(uri, version=version).count_rows():,}",
                tags.get(version, ""),
            )
            for version in (entry["version"] for entry in table.versions())
        ),
    )


def _size(size: int) -> str:
    return f"{size / 2**20:.1f} MiB" if size >= 2**20 else f"{size / 2**10:.1f} KiB"


def _columns(header: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> str:
    lines = [header, *([str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]).rstrip() for line in lines
    )
