"""Delta tables as a source, read by the package deltalake."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lance_core.errors import InvalidInputError, NotFoundError
from lance_core.importing.source import Partition, cast_batches, equals

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_Values = tuple[Any, ...]


class DeltaSource:
    """A version of a Delta table.

    Args:
        table: Its address.
        version: Number of the version; the newest if None.
        storage_options: As `deltalake.DeltaTable` takes them.

    Raises:
        InvalidInputError: The version is no number, or the extra ``delta`` is not installed.
        NotFoundError: There is no such table or version.
    """

    def __init__(self, table: str, *, version: str | None, storage_options: Mapping[str, str] | None) -> None:
        self._deltalake = _deltalake()
        self._uri, self._options = table, dict(storage_options or {})
        number = None if version is None else _number(version)
        try:
            self._table = self._deltalake.DeltaTable(table, version=number, storage_options=self._options or None)
        except self._deltalake.exceptions.DeltaError as error:
            what = "no Delta table" if number is None else f"no Delta table with a version {number}"
            raise NotFoundError(f"{table!r} is {what}: {str(error).splitlines()[0]}") from error

    @property
    def address(self) -> str:
        """Format, and id of the table."""
        return f"delta:{self._table.metadata().id}"

    @property
    def version(self) -> str:
        """Number of the version."""
        return str(self._table.version())

    @cached_property
    def schema(self) -> pa.Schema:
        """Schema of the rows."""
        return pa.schema(self._table.schema().to_arrow())

    @property
    def partitioned_by(self) -> tuple[str, ...]:
        """Columns of the partitions."""
        return tuple(self._columns)

    def partitions(self) -> dict[str, Partition]:
        """Return the partitions by their values."""
        return {
            name: Partition(
                condition=equals(zip(self._columns, self._scalars(values), strict=True)) if values else None,
                files=frozenset(identity for identity, _ in files),
                num_bytes=sum(size for _, size in files),
            )
            for name, (values, files) in self._files.items()
        }

    def read(self, names: Sequence[str]) -> pa.RecordBatchReader:
        """Return the rows of some partitions; deletion vectors are applied."""
        wanted = [self._sql(self._files[name][0]) for name in names]
        builder = self._deltalake.QueryBuilder().register("source", self._table)
        columns = ", ".join(map(_quoted, self.schema.names))
        stream = builder.execute(f"SELECT {columns} FROM source WHERE {' OR '.join(wanted)}")  # noqa: S608 names and values of the table itself, quoted
        return cast_batches(pa.RecordBatchReader.from_stream(stream), self.schema, address=self.address)

    def at(self, version: str) -> DeltaSource | None:
        """Return another version; None if its log is gone."""
        try:
            return DeltaSource(self._uri, version=version, storage_options=self._options)
        except NotFoundError:
            return None

    @cached_property
    def _columns(self) -> list[str]:
        return list(self._table.metadata().partition_columns)

    @cached_property
    def _files(self) -> dict[str, tuple[_Values, list[tuple[str, int]]]]:
        """Values of each partition, and identity and size of its files."""
        actions = pa.table(self._table.get_add_actions(flatten=True))
        names = [f"partition.{column}" for column in self._columns]
        vectors = [name for name in actions.column_names if name.startswith("deletion_vector")]
        files: dict[str, tuple[_Values, list[tuple[str, int]]]] = {}
        for row in actions.select(["path", "size_bytes", *names, *vectors]).to_pylist():
            values = tuple(row[name] for name in names)
            identity = "|".join(str(row[name]) for name in ("path", *vectors))
            files.setdefault(repr(values), (values, []))[1].append((identity, row["size_bytes"]))
        return dict(sorted(files.items()))

    def _scalars(self, values: _Values) -> list[pa.Scalar]:
        kinds = [self.schema.field(column).type for column in self._columns]
        return [pa.scalar(value, kind) for value, kind in zip(values, kinds, strict=True)]

    def _sql(self, values: _Values) -> str:
        """Return the condition in the SQL of DataFusion, which gives quoted text the type of the column."""
        terms: list[str] = []
        for column, value in zip(self._columns, self._scalars(values), strict=True):
            if not value.is_valid:
                terms.append(f"{_quoted(column)} IS NULL")
            elif pa.types.is_boolean(value.type):
                terms.append(f"{_quoted(column)} = {value.as_py()}")
            else:
                text = value.cast(pa.string()).as_py().replace("'", "''")
                terms.append(f"{_quoted(column)} = '{text}'")
        return f"({' AND '.join(terms)})" if terms else "true"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _number(version: str) -> int:
    if not version.isdecimal():
        raise InvalidInputError(f"{version!r} is not the number of a version of a Delta table")
    return int(version)


def _deltalake() -> Any:
    try:
        import deltalake  # noqa: PLC0415 an extra
    except ImportError as error:
        raise InvalidInputError("to import Delta tables, install lance-dagster[delta]") from error
    return deltalake
