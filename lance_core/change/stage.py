"""Write data files that no version knows yet.

A stream of batches becomes one fragment for each file; a later commit makes them visible. Memory holds one batch and
what the file writer buffers.
"""

from __future__ import annotations

import logging
import uuid
from contextlib import contextmanager, suppress
from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol

from lance_core.change.completion import Completion
from lance_core.change.ingest import fit_batch, fit_schema, new_schema, read_input, with_missing
from lance_core.common.frozen import frozen, mutable, replace
from lance_core.encoding.profiles import check_profile
from lance_core.format.blobs import blob_folder, blobs_for_version
from lance_core.format.file.file_version import LEGACY_FILE_VERSION
from lance_core.format.table.fragment import DataFile, Fragment
from lance_core.format.table.paths import data_file_path
from lance_core.scan.blob_places import ExternalBlobs, StagedBlobs
from lance_core.table.naming import naming
from lance_core.telemetry import Span

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    import pyarrow as pa

    from lance_core.file.write.field_writer import RowGroups
    from lance_core.file.write.writer import AnyFileWriter, DataFileWriter
    from lance_core.format.schema import Schema
    from lance_core.store.base import Store

_LOGGER = logging.getLogger("lance_core.write")

_WAITING_FILES, _WAITING_BYTES = 32, 1 << 22
"""Small files of which the rows are in memory together, and the bytes of these rows."""


@frozen(kw_only=True)
class FileLimits:
    """Size limits of a data file.

    Attributes:
        max_rows_per_file: Rows, exact.
        max_bytes_per_file: Bytes of the encoded file, checked after each batch.
        page_bytes: Bytes of Arrow data that make a page of one column; None for the writer's default.
        groups: Row groups of files of version 0.1; those of the writer if None.
    """

    max_rows_per_file: int
    max_bytes_per_file: int
    page_bytes: int | None = None
    groups: RowGroups | None = None


class StagingProgress(Protocol):
    """Receives an event when a data file begins and when it is finished. Ids of fragments count from 0."""

    def begin(self, fragment: Fragment, /) -> None:
        """A file begins."""
        ...

    def complete(self, fragment: Fragment, /) -> None:
        """A file is finished."""
        ...


def stage_data(
    store: Store,
    data: Any,
    schema: pa.Schema | None,
    *,
    table: Schema | None,
    limits: FileLimits,
    data_storage_version: str,
    profile: str | None = None,
    replaced: Schema | None = None,
    external_blobs: ExternalBlobs | None = None,
    progress: StagingProgress | None = None,
    completion: Completion | None = None,
) -> tuple[tuple[Fragment, ...], Schema]:
    """Write data in any form for a table.

    Args:
        store: The dataset.
        data: See `lance_core.change.ingest.read_input`.
        schema: Arrow schema to convert the data to.
        table: Schema of the table; None for a new one, whose schema comes from the data.
        limits: When a file is full.
        data_storage_version: File version.
        profile: Compression profile; None for that of the table, or of the schema that is replaced.
        replaced: Schema that a new one replaces.
        external_blobs: Which external blobs are taken; all if None.
        progress: Who is told of files.
        completion: As of `stage_fragments`.

    Returns:
        The staged fragments, and the schema of the table.

    Raises:
        InvalidInputError: Data that does not fit; nothing is left behind.
    """
    with naming(store):
        stream = read_input(data, schema)
        if table is None:
            table = new_schema(stream.schema, profile=profile, replaced=replaced)
            table = blobs_for_version(table, data_storage_version)
        else:
            check_profile(table.metadata, profile)
        fields, batches = fit_schema(stream.schema, table), stream.batches
        if data_storage_version == LEGACY_FILE_VERSION and len(fields.fields) < len(table.fields):
            fields, batches = table, (with_missing(batch, table) for batch in batches)
        fragments = stage_fragments(
            store,
            fields,
            batches,
            limits=limits,
            data_storage_version=data_storage_version,
            new_uuid=lambda: uuid.uuid4().bytes,
            external_blobs=external_blobs,
            progress=progress,
            completion=completion,
        )
    return fragments, table


def data_file_name(unique: bytes) -> str:
    """Name of a new data file, from 16 random bytes.

    The first three bytes are spelled in binary, as pylance does: object stores spread load by the first characters.
    """
    return f"{int.from_bytes(unique[:3]):024b}{unique[3:].hex()}.lance"


def stage_fragments(
    store: Store,
    fields: Schema,
    batches: Iterable[pa.RecordBatch],
    *,
    limits: FileLimits,
    data_storage_version: str,
    new_uuid: Callable[[], bytes],
    external_blobs: ExternalBlobs | None = None,
    progress: StagingProgress | None = None,
    meanwhile: Callable[[], object] | None = None,
    completion: Completion | None = None,
) -> tuple[Fragment, ...]:
    """Write batches into as many data files as the limits ask for.

    Args:
        store: The dataset.
        fields: Fields to write, with the ids of the table; see `lance_core.change.ingest.fit_schema`.
        batches: Rows with at least these fields.
        limits: When a file is full.
        data_storage_version: File version, such as "2.2".
        new_uuid: 16 new random bytes at each call.
        external_blobs: Which external blobs are taken; all if None.
        progress: Who is told of files.
        meanwhile: Work that needs all batches to have been read; on stores that are far away, it is done while the last
            files are completed. If the files fail, it is not undone.
        completion: Completes the files, the last one perhaps after this has returned: the caller waits for it. All are
            there if None.

    Returns:
        One fragment with id 0 for each file; none if there are no rows.

    Raises:
        UnsupportedError: A type that files of this version cannot hold; nothing was written.
        InvalidInputError: Data that does not fit; all files of this call are removed again.
    """
    with staged_files(
        store,
        fields,
        data_storage_version=data_storage_version,
        new_uuid=new_uuid,
        external_blobs=external_blobs,
        progress=progress,
        meanwhile=meanwhile,
        completion=completion,
    ) as staging:
        staging.page_bytes, staging.groups = limits.page_bytes, limits.groups
        for batch in batches:
            for part in _pieces(fit_batch(batch, fields), staging, limits.max_rows_per_file):
                staging.write(part)
                if staging.is_full(limits):
                    staging.end_file()
    return tuple(staging.fragments)


@contextmanager
def staged_files(
    store: Store,
    fields: Schema,
    *,
    data_storage_version: str,
    new_uuid: Callable[[], bytes],
    external_blobs: ExternalBlobs | None = None,
    progress: StagingProgress | None = None,
    meanwhile: Callable[[], object] | None = None,
    completion: Completion | None = None,
) -> Generator[FileStaging]:
    """Write data files until the block ends, then finish them all. If either fails, all are removed again.

    Args:
        store: As for `stage_fragments`, like the others.
        fields: Fields to write.
        data_storage_version: File version.
        new_uuid: 16 new random bytes at each call.
        external_blobs: Which external blobs are taken.
        progress: Who is told of files.
        meanwhile: Work that needs the block to have ended.
        completion: Completes the files.

    Raises:
        UnsupportedError: As `stage_fragments`.
    """
    from lance_core.file.write.writer import check_schema  # noqa: PLC0415 whoever writes no file needs no encoder

    check_schema(fields, version=data_storage_version)
    with Span("write", store.uri, has_bar=True) as span:
        staging = FileStaging(
            store=store,
            fields=fields,
            version=data_storage_version,
            new_uuid=new_uuid,
            external_blobs=external_blobs or ExternalBlobs(),
            progress=progress,
            completion=completion,
            span=span,
        )
        try:
            yield staging
            staging.finish()
            if meanwhile is not None:
                meanwhile()
            if completion is None:
                staging.complete()
        except BaseException:
            staging.abort()
            raise
        span.attributes["files"] = len(staging.fragments)
    if _LOGGER.isEnabledFor(logging.INFO):
        text = "written for %s: rows %s, files %s, %.3f s"
        _LOGGER.info(text, store.uri, f"{span.rows:,}", f"{len(staging.fragments):,}", span.seconds)


def remove_staged(store: Store, fragments: Sequence[Fragment]) -> None:
    """Remove staged files that no version can know. What cannot be removed stays for the clean-up."""
    paths = [data_file_path(file) for fragment in fragments for file in fragment.files]
    try:
        store.delete([path for data_path in paths for path in (data_path, *_blob_files(store, data_path))])
    except OSError as error:
        _LOGGER.warning("staged files are left for the clean-up: %s", error)


def _blob_files(store: Store, data_path: str) -> list[str]:
    """Return the blob files of a data file."""
    folder = blob_folder(data_path)
    return [f"{folder}/{name}" for name in store.names(folder)]


def _pieces(batch: pa.RecordBatch, staging: FileStaging, max_rows: int) -> Iterator[pa.RecordBatch]:
    """Cut a batch where files end; ``staging`` moves on between the pieces."""
    start = 0
    while start < batch.num_rows:
        piece = batch.slice(start, max_rows - staging.num_rows)
        start += piece.num_rows
        yield piece


@mutable(kw_only=True)
class FileStaging:
    """The file being written, and the fragments that are done.

    Attributes:
        store: The dataset.
        fields: Fields to write.
        version: File version.
        new_uuid: 16 new random bytes at each call.
        external_blobs: Which external blobs are taken.
        page_bytes: As in `FileLimits`.
        groups: As in `FileLimits`, of the next file.
        progress: Who is told of files.
        completion: Completes the files; one of its own if None.
        span: Counts what is written.
        fragments: One for each finished file.
        num_rows: Rows in the file being written.
    """

    store: Store
    fields: Schema
    version: str
    new_uuid: Callable[[], bytes]
    external_blobs: ExternalBlobs = field(default_factory=ExternalBlobs)
    page_bytes: int | None = None
    groups: RowGroups | None = None
    progress: StagingProgress | None = None
    completion: Completion | None = None
    span: Span | None = None
    fragments: list[Fragment] = field(default_factory=list["Fragment"])
    num_rows: int = 0
    _name: str = ""
    _writer: AnyFileWriter | None = None
    _ended: list[tuple[str, AnyFileWriter]] = field(default_factory=list[tuple[str, "AnyFileWriter"]])
    _waiting_bytes: int = 0
    _num_reported: int = 0
    _completion: Completion = field(init=False)

    def __post_init__(self) -> None:
        self._completion = self.completion or Completion(self.store)

    def page_writer(self) -> DataFileWriter:
        """Return the file being written, which takes pages of other files as they are; not for version 0.1."""
        from lance_core.file.write.writer import DataFileWriter  # noqa: PLC0415 whoever writes no file needs no encoder

        writer = self.writer()
        assert isinstance(writer, DataFileWriter)  # noqa: S101 for the type checker: callers have checked the version
        return writer

    def writer(self) -> AnyFileWriter:
        """Return the file being written; a new one if there is none."""
        writer = self._writer
        if writer is None:
            from lance_core.file.write.writer import open_writer  # noqa: PLC0415 whoever writes no file needs no encoder

            self._name = data_file_name(self.new_uuid())
            path = f"data/{self._name}"
            blobs = StagedBlobs(self.store, path, self.external_blobs)
            if self.progress is not None:
                number = len(self.fragments) + len(self._ended)
                self.progress.begin(Fragment(id=number, files=(), physical_rows=0))
            sink = self._completion.sink(self.store.writer(path))
            try:
                writer = self._writer = open_writer(
                    sink,
                    self.fields,
                    version=self.version,
                    blob_places=blobs,
                    page_bytes=self.page_bytes,
                    groups=self.groups,
                )
            except BaseException:
                sink.abort()
                raise
        return writer

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows to the file being written."""
        self.writer().write(batch)
        self.num_rows += batch.num_rows
        if self.span is not None:
            self.span.add(rows=batch.num_rows, num_bytes=batch.nbytes if self.span.is_observed else 0)

    def is_full(self, limits: FileLimits) -> bool:
        """Return whether the next row belongs into another file."""
        if self._writer is None or self.num_rows >= limits.max_rows_per_file:
            return True
        return self._writer.has_reached(limits.max_bytes_per_file)

    def end_file(self) -> None:
        """End the file being written, if there is one; small files wait for others, to be encoded together."""
        writer = self._writer
        if writer is None:
            return
        self._ended.append((self._name, writer))
        self._writer, self.num_rows = None, 0
        num_bytes = writer.waiting_bytes
        self._waiting_bytes += _WAITING_BYTES if num_bytes is None else num_bytes
        is_full = self._waiting_bytes >= _WAITING_BYTES or len(self._ended) == _WAITING_FILES
        if is_full or self.progress is not None:  # who is told of files hears that one is done before the next begins
            self._finish_ended()

    def finish(self) -> None:
        """End the file being written and finish those that wait; a store that is far away completes them later."""
        self.end_file()
        if self._ended:
            self._finish_ended()

    def _finish_ended(self) -> None:
        from lance_core.file.write.writer import finish_files  # noqa: PLC0415 whoever writes no file needs no encoder

        all_written = finish_files([writer for _, writer in self._ended])
        self.fields = self._ended[-1][1].schema  # dictionaries of version 0.1 go on in the next file
        for (name, _), written in zip(self._ended, all_written, strict=True):
            file = DataFile(
                path=name,
                fields=written.field_ids,
                column_indices=written.column_indices,
                file_major_version=written.major,
                file_minor_version=written.minor,
                file_size_bytes=written.size,
            )
            self.fragments.append(Fragment(id=0, files=(file,), physical_rows=written.num_rows))
        self._ended, self._waiting_bytes = [], 0
        self._completion.wait(leave=1)
        self._report()

    def complete(self) -> None:
        """Wait until all finished files are there."""
        self._completion.wait()
        self._report()

    def _report(self) -> None:
        """Tell of files that are there."""
        num_complete = len(self.fragments) - self._completion.num_pending
        for number in range(self._num_reported, num_complete):
            if self.progress is not None:
                self.progress.complete(replace(self.fragments[number], id=number))
        self._num_reported = num_complete

    def abort(self) -> None:
        """Remove all files."""
        self._completion.close()
        begun = self._ended if self._writer is None else [*self._ended, (self._name, self._writer)]
        for name, writer in begun:
            with suppress(OSError):
                writer.abort()
                path = f"data/{name}"
                # The file may be there although the store said that it failed.
                self.store.delete([path, *_blob_files(self.store, path)])
        remove_staged(self.store, self.fragments)
