"""Makes a Lance table equal to a table of another format, in commits that an interrupted import does not repeat."""

from __future__ import annotations

import os
import uuid
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal

import fsspec
import pyarrow as pa

from lance_core.common.frozen import frozen
from lance_core.dataset import LanceDataset, dataset
from lance_core.errors import DatasetNotFoundError, InvalidInputError, SchemaMismatchError, VersionNotFoundError
from lance_core.importing.delta import DeltaSource
from lance_core.importing.iceberg import IcebergSource
from lance_core.importing.parquet import ParquetSource
from lance_core.importing.plan import make_plan
from lance_core.table.idempotency import IDEMPOTENCY_KEY
from lance_core.values.operations import LanceOperation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from lance_core.importing.plan import Step
    from lance_core.importing.source import Source

Format = Literal["parquet", "delta", "iceberg"]
SOURCE_KEY = "lance_core.import.source"
"""Key of the table's configuration: the source."""
VERSION_KEY = "lance_core.import.version"
"""Key of the table's configuration: version of the source that the table equals."""
BEGUN_KEY = "lance_core.import.begun"
"""Key of the table's configuration: versions of which some partitions may be imported, the last one at last."""
RUN_KEY = "lance_core.import.run"
"""Key of the table's configuration: identity of the import that was begun last, kept by calls that go on with it."""
DEFAULT_COMMIT_BYTES = 1 << 30
_SOURCES: dict[str, Callable[..., Source]] = {"parquet": ParquetSource, "delta": DeltaSource, "iceberg": IcebergSource}


@frozen(kw_only=True)
class ImportResult:
    """Outcome of an import.

    Attributes:
        version: Version of the Lance table.
        source_version: Version of the source that it now equals.
        partitions: Number of partitions that were written.
        rows: Number of rows that were written.
        commits: Number of commits that wrote or removed rows.
    """

    version: int
    source_version: str
    partitions: int
    rows: int
    commits: int


def import_table(
    source: str | os.PathLike[str],
    uri: str | os.PathLike[str],
    *,
    format: Format | None = None,  # noqa: A002 the field's word
    source_version: int | str | None = None,
    source_options: Mapping[str, str] | None = None,
    storage_options: Mapping[str, str] | None = None,
    data_storage_version: str | None = None,
    commit_bytes: int = DEFAULT_COMMIT_BYTES,
    progress: Callable[[str, int, int], None] | None = None,
) -> ImportResult:
    """Make a Lance table equal to a Parquet, Delta or Iceberg table.

    The first import creates the Lance table. A later one writes only what has changed since: Delta and Iceberg remember
    what their older versions held, and each partition with other files than before is replaced. Parquet files do not
    remember; if any has changed, all are imported again. Partitions are committed in groups of about ``commit_bytes``;
    an import that was interrupted and is called again goes on behind the last of them. The configuration of the Lance
    table says which version of the source it equals (``lance_core.import.version``): it is set when the import is
    complete.

    Args:
        source: Parquet: a file or a folder, partitioned by folders named ``column=value`` or not. Delta: address of the
            table. Iceberg: address of a ``….metadata.json``, or ``catalog.namespace.table``.
        uri: Address of the Lance table.
        format: ``parquet``, ``delta`` or ``iceberg``; found out from the source if None.
        source_version: Number of a Delta version, id of an Iceberg snapshot; the newest if None.
        source_options: Settings to read the source, as fsspec, deltalake or pyiceberg take them.
        storage_options: Settings of the storage service of the Lance table.
        data_storage_version: File version of a new Lance table; 2.2 if None.
        commit_bytes: Bytes of source files that a commit imports, roughly.
        progress: Is told what is done, and how many bytes of how many are imported.

    Returns:
        What was done.

    Raises:
        InvalidInputError: ``uri`` is a table that was not imported from this source; or the format is not known; or the
            package that reads it is not installed (extras ``delta`` and ``iceberg``).
        NotFoundError: There is no such source or version.
        SchemaMismatchError: A column of the source has changed its type since the last import.

    Examples:
        >>> import pyarrow.parquet as pq
        >>> pq.write_table(pa.table({"id": [1, 2]}), "old.parquet")
        >>> lance_core.import_table("old.parquet", "new.lance").rows
        2
    """
    if commit_bytes < 1:
        raise InvalidInputError(f"commit_bytes is {commit_bytes}; give 1 or more")
    number = None if source_version is None else str(source_version)
    opened = _open(os.fspath(source), format, version=number, options=source_options)
    target = _Target(os.fspath(uri), opened, storage_options=storage_options, file_version=data_storage_version)
    base, begun = target.state()
    if base == opened.version and not begun:
        return target.finish()
    earlier = [*([] if base is None else [base]), *begun]
    planned = make_plan(opened, earlier=earlier, is_new=base is None, commit_bytes=commit_bytes)
    target.begin(begun)
    sizes = list(accumulate(step.num_bytes for step in planned))
    for step, done in zip(planned, sizes, strict=True):
        target.write(step)
        if progress is not None:
            progress("importing", done, sizes[-1])
    return target.finish()


class _Target:
    """The Lance table of an import."""

    def __init__(
        self, uri: str, source: Source, *, storage_options: Mapping[str, str] | None, file_version: str | None
    ) -> None:
        self._uri, self._source = uri, source
        self._settings: Any = {"storage_options": storage_options, "data_storage_version": file_version}
        self._num_rows = 0
        self._written: list[Step] = []
        self._is_created = False
        try:
            self._opened = dataset(uri, storage_options=storage_options)
        except DatasetNotFoundError:
            self._opened = None

    @property
    def _table(self) -> LanceDataset:
        if self._opened is None:
            raise DatasetNotFoundError(f"there is no table at {self._uri!r}")
        return self._opened

    def state(self) -> tuple[str | None, list[str]]:
        """Return the version of the source that was imported, and those whose import was begun and not finished."""
        if self._opened is None:
            return None, []
        config, address = dict(self._opened.config()), self._source.address
        if config.get(SOURCE_KEY) == address:
            return config.get(VERSION_KEY), config.get(BEGUN_KEY, "").split()
        if SOURCE_KEY not in config and self._opened.version == 1 and not self._opened.count_rows():
            return None, []  # a former import was interrupted after it created the table
        other = config.get(SOURCE_KEY)
        what = "was not made by an import" if other is None else f"was imported from {other}"
        raise InvalidInputError(f"the table {self._uri!r} {what}; import {address} into a new table")

    def begin(self, begun: Sequence[str]) -> None:
        """Create the table if there is none, and note that the import has begun."""
        version = self._source.version
        if self._opened is None:
            self._write(self._source.schema.empty_table(), mode="create")
            self._is_created = True
        if begun[-1:] != [version]:
            versions = [*(other for other in begun if other != version), version]
            notes = {SOURCE_KEY: self._source.address, BEGUN_KEY: " ".join(versions), RUN_KEY: uuid.uuid4().hex}
            self._table.update_config(notes)
        self._run = self._table.config().get(RUN_KEY, "")
        self._done = _keys_since_note(self._table)

    def write(self, step: Step) -> None:
        """Commit a step, unless a former attempt did."""
        key = f"{self._run}-{step.key}"  # the same version may be imported again after another one
        if key in self._done:
            return
        self._written.append(step)
        properties = {IDEMPOTENCY_KEY: key}
        if not step.names:
            condition = "true" if step.condition is None else step.condition
            self._table.delete(condition, transaction_properties=properties)
            return
        rows = self._source.read(step.names)
        counted = pa.RecordBatchReader.from_batches(rows.schema, self._count(rows))
        if step.condition is None:
            self._write(counted, mode="overwrite", idempotency_key=key)
        elif self._is_created:
            self._write(counted, mode="append", idempotency_key=key)
        else:
            _add_columns(self._table, rows.schema)
            self._table.replace_where(step.condition, counted, transaction_properties=properties)

    def finish(self) -> ImportResult:
        """Note that the table equals the source; return what was done."""
        _add_columns(self._table, self._source.schema)  # the source may have new columns and no new files
        if self._table.config().get(VERSION_KEY) != self._source.version or BEGUN_KEY in self._table.config():
            self._table.update_config({VERSION_KEY: self._source.version, BEGUN_KEY: None, RUN_KEY: None})
        return ImportResult(
            version=self._table.version,
            source_version=self._source.version,
            partitions=sum(len(step.names) for step in self._written),
            rows=self._num_rows,
            commits=len(self._written),
        )

    def _write(self, rows: pa.Table | pa.RecordBatchReader, *, mode: str, idempotency_key: str | None = None) -> None:
        self._opened = LanceDataset.write_dataset(
            rows, self._uri, mode=mode, idempotency_key=idempotency_key, **self._settings
        )

    def _count(self, rows: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        for batch in rows:
            self._num_rows += batch.num_rows
            yield batch


def _open(source: str, name: str | None, *, version: str | None, options: Mapping[str, str] | None) -> Source:
    if name is None:
        name = _guess(source, options)
    if name not in _SOURCES:
        raise InvalidInputError(f"format {name!r} is not known; it is one of {', '.join(_SOURCES)}")
    return _SOURCES[name](source, version=version, storage_options=options)


def _guess(source: str, options: Mapping[str, str] | None) -> str:
    """Return the format of a source: Iceberg by its name, Delta by its log, else Parquet."""
    if source.endswith(".metadata.json"):
        return "iceberg"
    system, path = fsspec.url_to_fs(source, **(options or {}))
    return "delta" if system.exists(f"{path.rstrip('/')}/_delta_log") else "parquet"


def _keys_since_note(table: LanceDataset) -> set[str]:
    """Keys of the steps that were committed since the import was begun."""
    keys: set[str] = set()
    for version in range(table.version, 0, -1):
        try:
            transaction = table.read_transaction(version)
        except VersionNotFoundError:  # cleaned up, and so are all before it
            break
        properties = None if transaction is None else transaction.transaction_properties
        if transaction is None or isinstance(transaction.operation, LanceOperation.UpdateConfig):
            break
        keys.add((properties or {}).get(IDEMPOTENCY_KEY, ""))
    return keys


def _add_columns(table: LanceDataset, schema: pa.Schema) -> None:
    """Add the columns that the source has got since the last import, with nulls in the rows that are there."""
    for field in schema:
        if field.name in table.schema.names and table.schema.field(field.name).type != field.type:
            raise SchemaMismatchError(
                f"column {field.name!r} of the source has become {field.type}, in the table it is "
                f"{table.schema.field(field.name).type}; import the source into a new table"
            )
    new = [field for field in schema if field.name not in table.schema.names]
    if new:
        table.add_columns(pa.schema(new))
