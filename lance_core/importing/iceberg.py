"""Iceberg tables as a source, read by the package pyiceberg."""

from __future__ import annotations

from functools import cached_property, reduce
from operator import and_
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lance_core.errors import InvalidInputError, NotFoundError
from lance_core.importing.source import Partition, cast_batches

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_UNITS = {"year": "Y", "month": "M", "day": "D", "hour": "h"}
"""Transforms that number spans of time since 1970, and the unit of numpy."""


class IcebergSource:
    """A snapshot of an Iceberg table.

    Partitions follow the fields of the partition specification that cut the table by a column itself or by its time.
    Fields that cut by a hash or a prefix, or that files of an older specification lack, make no partitions.

    Args:
        table: Address of a metadata file (``….metadata.json``); or ``catalog.namespace.table``, with a catalog that
            pyiceberg knows by its configuration or by ``storage_options``.
        version: Id of the snapshot; the current one if None.
        storage_options: Properties of the catalog or of the file system, as pyiceberg takes them.

    Raises:
        InvalidInputError: The version is no number, or the extra ``iceberg`` is not installed.
        NotFoundError: There is no such table or snapshot.
    """

    def __init__(self, table: str, *, version: str | None, storage_options: Mapping[str, str] | None) -> None:
        self._table = _load(table, dict(storage_options or {}))
        if version is not None and not version.isdecimal():
            raise InvalidInputError(f"{version!r} is not the id of a snapshot of an Iceberg table")
        snapshot = self._table.current_snapshot() if version is None else self._table.snapshot_by_id(int(version))
        if snapshot is None:
            what = "has no rows yet" if version is None else f"has no snapshot {version}; it may have expired"
            raise NotFoundError(f"the Iceberg table {table!r} {what}")
        self._scan = self._table.scan(snapshot_id=snapshot.snapshot_id)
        self._snapshot_id: int = snapshot.snapshot_id
        self._uri, self._options = table, storage_options

    @property
    def address(self) -> str:
        """Format, and id of the table."""
        return f"iceberg:{self._table.metadata.table_uuid}"

    @property
    def version(self) -> str:
        """Id of the snapshot."""
        return str(self._snapshot_id)

    @cached_property
    def schema(self) -> pa.Schema:
        """Schema of the rows, without the field ids of Iceberg."""
        schema = self._scan.projection().as_arrow()
        return pa.schema([field.remove_metadata() for field in schema])

    @property
    def partitioned_by(self) -> tuple[str, ...]:
        """Column and transform of each field that makes partitions."""
        return tuple(f"{transform}:{column}" for column, transform in self._keys)

    def partitions(self) -> dict[str, Partition]:
        """Return the partitions by their values."""
        return {
            name: Partition(
                condition=self._condition(values) if values else None,
                files=frozenset(map(_identity, tasks)),
                num_bytes=sum(task.file.file_size_in_bytes for task in tasks),
            )
            for name, (values, tasks) in self._tasks.items()
        }

    def read(self, names: Sequence[str]) -> pa.RecordBatchReader:
        """Return the rows of some partitions; delete files are applied."""
        from pyiceberg.expressions import AlwaysTrue  # noqa: PLC0415 an extra
        from pyiceberg.io.pyarrow import ArrowScan  # noqa: PLC0415 an extra

        scan = ArrowScan(self._table.metadata, self._table.io, self._scan.projection(), AlwaysTrue())
        tasks = [task for name in names for task in self._tasks[name][1]]
        return cast_batches(scan.to_record_batches(tasks), self.schema, address=self.address)

    def at(self, version: str) -> IcebergSource | None:
        """Return another snapshot; None if it has expired."""
        try:
            return IcebergSource(self._uri, version=version, storage_options=self._options)
        except NotFoundError:
            return None

    @cached_property
    def _tasks(self) -> dict[str, tuple[tuple[Any, ...], list[Any]]]:
        """Values of each partition, and the files to read."""
        tasks: dict[str, tuple[tuple[Any, ...], list[Any]]] = {}
        for task in self._scan.plan_files():
            specification = self._table.specs()[task.file.spec_id]
            positions = {_key(field): number for number, field in enumerate(specification.fields)}
            values = tuple(task.file.partition[positions[key]] for key in self._keys)
            tasks.setdefault(repr(values), (values, []))[1].append(task)
        return dict(sorted(tasks.items()))

    @cached_property
    def _keys(self) -> list[tuple[int, str]]:
        """Column id and transform of the fields that all files are partitioned by and that have a condition."""
        used = {task.file.spec_id for task in self._scan.plan_files()}
        fields = [{_key(field) for field in self._table.specs()[number].fields} for number in used]
        columns = {field.field_id for field in self._scan.projection().fields}
        shared: set[tuple[int, str]] = set.intersection(*fields) if fields else set()
        return sorted(key for key in shared if key[0] in columns and key[1] in {"identity", *_UNITS})

    def _condition(self, values: Sequence[Any]) -> pc.Expression:
        terms: list[pc.Expression] = []
        for (column, transform), value in zip(self._keys, values, strict=True):
            name = self._scan.projection().find_column_name(column)
            field, kind = pc.field(name), self.schema.field(name).type
            if value is None:
                terms.append(field.is_null())
            elif transform == "identity":
                terms.append(field == pa.scalar(value, kind))
            else:
                terms += [field >= _start(value, transform, kind), field < _start(value + 1, transform, kind)]
        return reduce(and_, terms)


def _start(number: int, transform: str, kind: pa.DataType) -> pa.Scalar:
    """Start of the span of time with a number."""
    start = np.array(number).astype(f"datetime64[{_UNITS[transform]}]").astype("datetime64[us]")[()]
    zone = getattr(kind, "tz", None)
    return pa.scalar(start, pa.timestamp("us", zone)).cast(kind)


def _key(field: Any) -> tuple[int, str]:
    return field.source_id, str(field.transform)


def _identity(task: Any) -> str:
    """Return the files that the rows of a file depend on: itself, and those that delete rows of it."""
    return "|".join([task.file.file_path, *sorted(file.file_path for file in task.delete_files)])


def _load(table: str, options: dict[str, str]) -> Any:
    try:
        from pyiceberg.catalog import load_catalog  # noqa: PLC0415 an extra
        from pyiceberg.exceptions import NoSuchIdentifierError, NoSuchTableError  # noqa: PLC0415 an extra
        from pyiceberg.table import StaticTable  # noqa: PLC0415 an extra
    except ImportError as error:
        raise InvalidInputError("to import Iceberg tables, install lance-dagster[iceberg]") from error
    try:
        if table.endswith(".metadata.json"):
            return StaticTable.from_metadata(table, options)
        catalog, _, identifier = table.partition(".")
        return load_catalog(catalog, **options).load_table(identifier)
    except (NoSuchTableError, NoSuchIdentifierError, OSError, ValueError) as error:
        raise NotFoundError(f"the Iceberg table {table!r} cannot be loaded: {error}") from error
