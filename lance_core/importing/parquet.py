"""Folders of Parquet files as a source; folders named ``column=value`` are partitions."""

from __future__ import annotations

import hashlib
from functools import cached_property
from pathlib import PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import unquote

import fsspec
import pyarrow as pa
import pyarrow.dataset as pads
from pyarrow.fs import FSSpecHandler, PyFileSystem

from lance_core.errors import InvalidInputError, NotFoundError
from lance_core.importing.source import Partition, cast_batches, equals

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_NULL = "__HIVE_DEFAULT_PARTITION__"


class ParquetSource:
    """Parquet files as they are now.

    Args:
        location: A file, or a folder with files below it; a path, or an address that fsspec knows. Names that begin
            with ``_`` or ``.`` are passed over, as Spark does.
        version: Must be None: files have no versions.
        storage_options: As the file system of fsspec takes them.

    Raises:
        InvalidInputError: A version is asked for.
        NotFoundError: There are no Parquet files.
    """

    def __init__(self, location: str, *, version: str | None, storage_options: Mapping[str, str] | None) -> None:
        if version is not None:
            raise InvalidInputError(f"Parquet files have no versions; version {version!r} was asked for")
        self._system, root = fsspec.url_to_fs(location, **(storage_options or {}))
        self._root = root.rstrip("/")
        self._uri = location
        self._sizes = self._list()
        if not self._sizes:
            raise NotFoundError(f"there are no Parquet files at {location!r}")

    @property
    def address(self) -> str:
        """Format and location."""
        return f"parquet:{self._system.unstrip_protocol(self._root)}"

    @property
    def version(self) -> str:
        """A digest of the names, sizes and times of all files."""
        identities = sorted(self._identity(path) for path in self._sizes)
        return hashlib.sha256("\n".join(identities).encode()).hexdigest()[:32]

    @cached_property
    def schema(self) -> pa.Schema:
        """Schema of the rows: that of all files together, then the columns of the folders."""
        return self._dataset.schema

    @property
    def partitioned_by(self) -> tuple[str, ...]:
        """Columns that the names of the folders give."""
        return tuple(self._partition_columns)

    def partitions(self) -> dict[str, Partition]:
        """Return the partitions by the names of their folders."""
        return {
            name: Partition(
                condition=self._condition(name),
                files=frozenset(map(self._identity, paths)),
                num_bytes=sum(self._sizes[path][0] for path in paths),
            )
            for name, paths in self._folders.items()
        }

    def read(self, names: Sequence[str]) -> pa.RecordBatchReader:
        """Return the rows of some partitions."""
        paths = {path for name in names for path in self._folders[name]}
        fragments = [fragment for fragment in self._dataset.get_fragments() if fragment.path in paths]
        some = pads.FileSystemDataset(fragments, self.schema, pads.ParquetFileFormat(), self._dataset.filesystem)
        return cast_batches(some.scanner().to_reader(), self.schema, address=self.address)

    def at(self, version: str) -> ParquetSource | None:
        """Return another version; the files as they are now are the only one."""
        return self if version == self.version else None

    def _list(self) -> dict[str, tuple[int, str]]:
        """Size and time of each file."""
        details = self._system.find(self._root, detail=True)
        sizes: dict[str, tuple[int, str]] = {}
        for path, info in details.items():
            inner = PurePosixPath(path[len(self._root) :]).parts
            if path == self._root or (path.endswith(".parquet") and not any(part[0] in "_." for part in inner)):
                stamp = info.get("mtime") or info.get("LastModified") or info.get("ETag") or ""
                sizes[path] = info["size"], str(stamp)
        return dict(sorted(sizes.items()))

    def _identity(self, path: str) -> str:
        size, stamp = self._sizes[path]
        return f"{path[len(self._root) :]}|{size}|{stamp}"

    @cached_property
    def _folders(self) -> dict[str, list[str]]:
        """Paths of the files of each partition."""
        folders: dict[str, list[str]] = {}
        for path in self._sizes:
            parts = [part for part in PurePosixPath(path[len(self._root) :]).parts[:-1] if "=" in part]
            folders.setdefault("/".join(parts), []).append(path)
        if len({tuple(part.partition("=")[0] for part in name.split("/")) for name in folders}) > 1:
            shown = ", ".join(sorted(folders)[:3])
            raise InvalidInputError(f"the folders below {self._uri!r} are not named alike: {shown}")
        return folders

    @cached_property
    def _dataset(self) -> pads.FileSystemDataset:
        system = PyFileSystem(FSSpecHandler(self._system))
        options = {"format": "parquet", "filesystem": system, "partition_base_dir": self._root}
        paths, partitioning = list(self._sizes), pads.partitioning(flavor="hive")
        dataset = pads.dataset(paths, partitioning=partitioning, **options)
        schemas = [fragment.physical_schema for fragment in dataset.get_fragments()]
        folders = [dataset.schema.field(name) for name in self._partition_columns if name in dataset.schema.names]
        whole = pa.unify_schemas([*schemas, pa.schema(folders)], promote_options="permissive")
        return pads.dataset(paths, partitioning=partitioning, schema=whole, **options)

    @property
    def _partition_columns(self) -> list[str]:
        name = next(iter(self._folders))
        return [part.partition("=")[0] for part in name.split("/")] if name else []

    def _condition(self, name: str) -> pads.Expression | None:
        if not name:
            return None
        values: list[tuple[str, pa.Scalar]] = []
        for part in name.split("/"):
            column, _, text = part.partition("=")
            kind = self.schema.field(column).type
            value = None if text == _NULL else unquote(text)
            values.append((column, pa.scalar(value, pa.string()).cast(kind)))
        return equals(values)
