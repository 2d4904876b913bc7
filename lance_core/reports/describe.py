"""A readable picture of a data file or a table: what is in it, how it is encoded, what that costs."""

from __future__ import annotations

import os
import re
from collections import Counter
from typing import TYPE_CHECKING

from lance_core.dataset import LanceDataset
from lance_core.errors import NotFoundError
from lance_core.file.integrity import has_checksums
from lance_core.file.read.reader import DataFileReader
from lance_core.format.table.paths import data_file_path
from lance_core.store.open import open_store

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lance_core.file.file_layout import ColumnSummary, FileLayout
    from lance_core.store.base import Store

MAX_FILES = 16
"""Data files of a table that are looked into."""
MAX_FRAGMENTS = 20
"""Fragments of a table that are listed."""
_BATCH_ROWS = 1 << 16

_COUNTS = re.compile(r"(num_\w+=\d+|has_\w+|layers=\[[^]]*\])(, )?")


def describe(
    uri: str | os.PathLike[str], *, storage_options: Mapping[str, str] | None = None, measure: bool = True
) -> str:
    """Return a data file or a table as text.

    Args:
        uri: Path or address.
        storage_options: Settings of the storage service.
        measure: Tell how much smaller than in Arrow columns are; for this their data is read once, batch by batch.

    Raises:
        NotFoundError: There is neither a file nor a table.
        CorruptDataError: It is damaged.
    """
    store = open_store(uri, storage_options)
    if store.names("_versions"):
        return _describe_table(LanceDataset(uri, storage_options=storage_options), measure=measure)
    folder, _, name = os.fspath(uri).rstrip("/").rpartition("/")
    if not name:
        raise NotFoundError("there is neither a data file nor a dataset at this address", path=os.fspath(uri))
    files = open_store(folder or ("/" if os.fspath(uri).startswith("/") else "."), storage_options)
    return _describe_file(files, name, measure=measure)


def _describe_file(store: Store, name: str, *, measure: bool) -> str:
    source = store.reader(name)
    reader = DataFileReader(source, path=name)
    layout = reader.file_layout()
    in_globals = sum(size for _, size in layout.global_buffers)
    head = (
        f"{name}: Lance file {reader.version}, {reader.num_rows:,} rows, {len(layout.columns)} columns, "
        f"{source.size:,} bytes ({layout.num_data_bytes:,} of pages, {layout.num_metadata_bytes:,} of metadata, "
        f"{in_globals:,} of {len(layout.global_buffers)} global buffers), "
        f"{'with' if has_checksums(source) else 'without'} checksums"
    )
    sizes = _arrow_bytes([reader]) if measure else {}
    return "\n".join([head, *_metadata(reader.schema.metadata), "", *_column_table([layout], sizes)])


def _describe_table(dataset: LanceDataset, *, measure: bool) -> str:
    snapshot = dataset.snapshot
    manifest = snapshot.manifest
    numbers = dataset.table_statistics()
    ids = ", stable row ids" if dataset.has_stable_row_ids else ""
    head = (
        f"{dataset.uri}: Lance table, version {dataset.version} of {manifest.timestamp:%Y-%m-%d %H:%M:%S} UTC, "
        f"{numbers['num_rows']:,} rows"
    )
    summary = (
        f"files of version {dataset.data_storage_version}{ids}: {numbers['num_data_files']:,} in "
        f"{numbers['num_fragments']:,} fragments, {numbers['num_bytes']:,} bytes; "
        f"{numbers['num_deleted_rows']:,} rows deleted in {numbers['num_deletion_files']:,} deletion files"
    )
    config = [f"config {key} = {value}" for key, value in sorted(manifest.config.items())]
    paths = [data_file_path(file) for fragment in dataset.get_fragments()[:MAX_FILES] for file in fragment.data_files()]
    readers = [DataFileReader(snapshot.store.reader(path), path=path) for path in paths[:MAX_FILES]]
    lines = [head, summary, *_metadata(manifest.schema.metadata), *config, "", *_fragment_table(dataset), ""]
    if len(readers) < numbers["num_data_files"]:
        lines.append(f"columns of the first {len(readers)} data files:")
    sizes = _arrow_bytes(readers) if measure else {}
    return "\n".join([*lines, *_column_table([reader.file_layout() for reader in readers], sizes)])


def _fragment_table(dataset: LanceDataset) -> list[str]:
    rows: list[tuple[str, ...]] = [("fragment", "rows", "deleted", "files", "bytes")]
    fragments = dataset.get_fragments()
    for fragment in fragments[:MAX_FRAGMENTS]:
        size = sum(file.file_size_bytes or 0 for file in fragment.data_files())
        counts = (fragment.physical_rows, fragment.num_deletions, len(fragment.data_files()), size)
        rows.append((str(fragment.fragment_id), *(f"{count:,}" for count in counts)))
    more = [f"... and {len(fragments) - MAX_FRAGMENTS:,} more"] if len(fragments) > MAX_FRAGMENTS else []
    return [*aligned(rows, left=()), *more]


def _metadata(metadata: Mapping[str, bytes]) -> list[str]:
    return [f"metadata {key} = {value.decode(errors='replace')}" for key, value in sorted(metadata.items())]


def _arrow_bytes(readers: Iterable[DataFileReader]) -> Counter[str]:
    """Return bytes of each top-level column in Arrow."""
    sizes: Counter[str] = Counter()
    for reader in readers:
        numbers = reader.column_numbers
        for batch in reader.scan(reader.schema, numbers, start=0, end=reader.num_rows, batch_size=_BATCH_ROWS):
            for name, array in zip(batch.schema.names, batch.columns, strict=True):
                sizes[name] += array.nbytes
    return sizes


def _column_table(layouts: Sequence[FileLayout], arrow_bytes: Mapping[str, int]) -> list[str]:
    """One line for each column, summed over files; nested columns share the ratio of their top-level field."""
    merged: dict[str, list[ColumnSummary]] = {}
    for layout in layouts:
        for column in layout.columns:
            merged.setdefault(column.path, []).append(column)
    stored: Counter[str] = Counter()
    for path, columns in merged.items():
        stored[_top(path, arrow_bytes)] += sum(column.num_bytes for column in columns)
    rows = [("column", "type", "pages", "bytes", "Arrow", "encodings")]
    told: set[str] = set()
    for path, columns in merged.items():
        top = _top(path, arrow_bytes)
        ratio = "" if top in told or not stored[top] else f"{arrow_bytes.get(top, 0) / stored[top]:.1f}x"
        told.add(top)
        pages = [page for column in columns for page in column.pages]
        kinds = Counter(_short(page.encoding) for page in pages)
        size = sum(column.num_bytes for column in columns)
        encodings = " | ".join(f"{kind} ({n})" if len(kinds) > 1 else kind for kind, n in kinds.most_common())
        ratio = ratio if arrow_bytes else ""
        rows.append((path, columns[0].logical_type, f"{len(pages):,}", f"{size:,}", ratio, encodings))
    return aligned(rows, left=(0, 1, 5))


def _top(path: str, names: Mapping[str, int]) -> str:
    """Return the top-level field of a path; names may have dots themselves."""
    return path if path in names else path.partition(".")[0]


def _short(encoding: str) -> str:
    """Return an encoding without what differs from page to page."""
    return _COUNTS.sub("", encoding).replace("Layout(", "(").replace(", )", ")").replace("()", "")


def aligned(rows: Sequence[Sequence[str]], *, left: Sequence[int]) -> list[str]:
    """Return a line for each row, its cells in columns; those of ``left`` begin, others end at the same place."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if at in left else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
