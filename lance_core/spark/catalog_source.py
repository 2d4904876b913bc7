"""The data source ``lance_catalog``: does for the catalog what touches a store.

The catalog is Java in Spark's driver, see `lance_core.spark.catalog`. It asks for the schema of this source, and finds
the answer in the pickled object.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from lance_core.dataset import dataset as open_dataset
from lance_core.encoding.profiles import checked_profile
from lance_core.errors import DatasetAlreadyExistsError, DatasetNotFoundError
from lance_core.methods.files import drop
from lance_core.spark import table_frames
from lance_core.spark.catalog_commands import COMMANDS
from lance_core.spark.common.types import check_names, lance_schema
from lance_core.spark.common.worker_errors import without_traceback
from lance_core.spark.reading.pushdown import marked
from lance_core.store.open import open_store
from lance_core.write import write_dataset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from lance_core.dataset import LanceDataset

_SUFFIX = ".lance"
_STORE_OPTIONS = ("storage_options", "base_store_params")


class CatalogSource(DataSource):
    """Runs one command of the catalog."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._given = {key.lower(): value for key, value in options.items()}
        self._answer = ""

    @classmethod
    def name(cls) -> str:
        """Return the name to give to ``format``."""
        return "lance_catalog"

    @without_traceback
    def schema(self) -> str:
        """Run the command, or return the columns of the rows that it is about."""
        command, path = self._given["command"], _path(self._given)
        if command in COMMANDS:
            dataset = open_dataset(path, **_store_options(self._given))
            self._answer = marked(COMMANDS[command](dataset, self._given))
        elif command in _FACTS:
            open_dataset(path, **_store_options(self._given))
            return _FACTS[command][0]
        else:
            self._answer = marked({"names": "/".join(_LISTS[command](path, self._given))})
        return "name string"

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of facts about a table."""
        return _FactsReader(self._given, schema.names)


class _FactsReader(DataSourceReader):
    """Reads rows about a table, in one task."""

    def __init__(self, given: Mapping[str, str], names: Sequence[str]) -> None:
        self._given = dict(given)
        self._names = list(names)

    def partitions(self) -> Sequence[InputPartition]:
        """One task."""
        return [InputPartition(0)]

    @without_traceback
    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Yield the columns asked for."""
        del partition
        ddl, rows = _FACTS[self._given["command"]]
        columns = [column.split(" ")[0] for column in _COLUMN.findall(ddl)]
        chosen = [columns.index(name) for name in self._names]
        for row in rows(open_dataset(_path(self._given), **_store_options(self._given))):
            yield tuple(row[number] for number in chosen)


_FACTS: Mapping[str, tuple[str, Callable[[LanceDataset], Iterable[tuple[Any, ...]]]]] = {
    "history": (table_frames.HISTORY, lambda dataset: table_frames.history_rows(dataset, None)),
    "detail": (table_frames.DETAIL, lambda dataset: [table_frames.detail_row(dataset)]),
    "files": (table_frames.FILES, table_frames.file_rows),
    "tags": (table_frames.TAGS, table_frames.tag_rows),
    "branches": (table_frames.BRANCHES, table_frames.branch_rows),
    "indices": (table_frames.INDICES, table_frames.index_rows),
}
"""Columns and rows by command."""

_COLUMN = re.compile(r"(?:^|, )(\w+ [a-z])")
"""The name of a column, and a letter of its type; types inside of maps follow no name."""


def _path(given: Mapping[str, str]) -> str:
    return given["path"].removeprefix("file:")


def _store_options(given: Mapping[str, str]) -> dict[str, Any]:
    return {name: json.loads(given[name]) for name in _STORE_OPTIONS if name in given}


def _names(path: str, given: Mapping[str, str]) -> list[str]:
    parent, _, folder = path.rstrip("/").rpartition("/")
    store = open_store(parent or "/", _store_options(given).get("storage_options"))
    return sorted(name for name in store.names(folder) if not name.startswith("."))


def _tables(path: str, given: Mapping[str, str]) -> list[str]:
    return [name.removesuffix(_SUFFIX) for name in _names(path, given) if name.endswith(_SUFFIX)]


def _namespaces(path: str, given: Mapping[str, str]) -> list[str]:
    """Folders that are no tables; files may lie there, too."""
    return [name for name in _names(path, given) if "." not in name]


def _create(path: str, given: Mapping[str, str]) -> list[str]:
    """Create a table without rows; its name if it was there and must not be replaced."""
    columns = lance_schema(StructType.fromJson(json.loads(given["columns"])), is_declared=True)
    check_names(columns)
    profile = given.get("compression_profile")
    try:
        dataset = write_dataset(
            columns.empty_table(),
            path,
            mode="overwrite" if given["command"] == "replace" else "create",
            data_storage_version=given.get("data_storage_version"),
            compression_profile=None if profile is None else checked_profile(profile),
            enable_stable_row_ids=given.get("enable_stable_row_ids", "false").lower() == "true",
            **_store_options(given),
        )
    except DatasetAlreadyExistsError:
        return ["it"]
    if "table_config" in given:
        dataset.update_config(json.loads(given["table_config"]))
    return []


def _drop(path: str, given: Mapping[str, str]) -> list[str]:
    """Delete a table with all its versions; no name if there is none."""
    options = _store_options(given)
    try:
        open_dataset(path, **options)
    except DatasetNotFoundError:
        return []
    drop(path, options.get("storage_options"))
    return ["it"]


_LISTS: Mapping[str, Callable[[str, Mapping[str, str]], list[str]]] = {
    "tables": _tables,
    "namespaces": _namespaces,
    "create": _create,
    "replace": _create,
    "drop": _drop,
}
"""Commands that answer with names."""
