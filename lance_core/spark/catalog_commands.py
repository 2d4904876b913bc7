"""Run statements of SQL and procedures on one table, in a process of the driver."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, StructField, StructType

from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.index.vector.train import INDEX_TYPES
from lance_core.spark.common.types import check_names, lance_schema
from lance_core.table.open_table import find_version_as_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lance_core.dataset import LanceDataset

    Answer = dict[str, Any]
    Given = Mapping[str, str]
    Change = dict[str, Any]


# --------------------------------------------------------------------------------------------------------- ALTER TABLE


def _alter(dataset: LanceDataset, given: Given) -> Answer:
    """Changes of one kind that follow one another are one commit."""
    changes: list[Change] = json.loads(given["changes"])
    for kind, group in groupby(changes, lambda change: change["kind"]):
        _ALTERATIONS[kind](dataset, list(group))
    return {}


def _add(dataset: LanceDataset, changes: Sequence[Change]) -> None:
    for change in changes:
        name = ".".join(change["path"])
        if not change["nullable"]:
            raise InvalidInputError(f"Column {name!r} cannot be NOT NULL: it is null in the rows that the table has.")
        if change["position"]:
            raise UnsupportedError(
                f"Column {name!r} cannot be put {change['position']}: new columns are the last. Leave it out."
            )
    for change in changes:  # one at a time, since several may be fields of one struct
        columns = lance_schema(StructType([_column(change["path"], change, pa.struct(list(dataset.schema)))]))
        existing = {name.lower(): name for name in dataset.schema.names}
        if len(change["path"]) == 1 and existing.get(columns.names[0].lower(), columns.names[0]) != columns.names[0]:
            check_names(dataset.schema.append(columns.field(0)))
        dataset.add_columns(columns)


def _column(path: Sequence[str], change: Change, parent: pa.DataType) -> StructField:
    """Return a column, or the column that gets a field; ``parent`` is the struct that has it or gets it."""
    if len(path) == 1:
        metadata = {"comment": change["comment"]} if change["comment"] else None
        return StructField(path[0], _data_type(change["type"]), nullable=True, metadata=metadata)
    kind = _inner(parent, path[0])
    if pa.types.is_struct(kind):
        return StructField(path[0], StructType([_column(path[1:], change, kind)]))
    return StructField(path[0], ArrayType(StructType([_column(path[2:], change, _inner(kind, path[1]))])))


def _inner(kind: pa.DataType, name: str) -> pa.DataType:
    """Return the type of a field of a struct, of the items of a list, or of a part of a map, by Spark's name of it."""
    if isinstance(kind, pa.MapType):
        return kind.key_type if name == "key" else kind.item_type
    return kind.field(name).type if pa.types.is_struct(kind) else kind.field(0).type


def _data_type(text: str) -> DataType:
    return StructField.fromJson({"name": "", "type": json.loads(text), "nullable": True, "metadata": {}}).dataType


def _drop(dataset: LanceDataset, changes: Sequence[Change]) -> None:
    dataset.drop_columns([_path(dataset, change) for change in changes])


def _alter_columns(dataset: LanceDataset, changes: Sequence[Change]) -> None:
    alterations: dict[str, dict[str, Any]] = {}
    for change in changes:
        alteration = alterations.setdefault(path := _path(dataset, change), {"path": path})
        if "type" in change:
            field = StructField(change["path"][-1], _data_type(change["type"]))
            alteration["data_type"] = lance_schema(StructType([field])).field(0).type
        alteration |= {key: change[key] for key in ("name", "nullable") if key in change}
    dataset.alter_columns(*alterations.values())


def _comment(dataset: LanceDataset, changes: Sequence[Change]) -> None:
    dataset.update_field_metadata(
        {_path(dataset, change): {"comment": change["comment"] or None} for change in changes}
    )


def _set_properties(dataset: LanceDataset, changes: Sequence[Change]) -> None:
    fixed = [change["key"] for change in changes if change["key"] in FIXED_PROPERTIES]
    if fixed:
        raise InvalidInputError(f"The property {fixed[0]!r} cannot change: it was chosen when the table was created.")
    dataset.update_config({change["key"]: change.get("value") for change in changes})


def _path(dataset: LanceDataset, change: Change) -> str:
    kind, names = pa.struct(list(dataset.schema)), []
    for name in change["path"]:
        names.append(name if pa.types.is_struct(kind) or pa.types.is_map(kind) else "item")
        kind = _inner(kind, name)
    return ".".join(names)


_ALTERATIONS: Mapping[str, Callable[[LanceDataset, Sequence[Change]], None]] = {
    "add": _add,
    "drop": _drop,
    "alter": _alter_columns,
    "comment": _comment,
    "property": _set_properties,
}

FIXED_PROPERTIES = ("data_storage_version", "enable_stable_row_ids", "compression_profile")
"""Properties of a table that is created; all others are its configuration."""


# ------------------------------------------------------------------------------------------------------------- indices


def _create_index(dataset: LanceDataset, given: Given) -> Answer:
    columns: list[str] = json.loads(given["columns"])
    settings = {name: _value(text) for name, text in json.loads(given["settings"]).items()}
    if len(columns) > 1:
        raise UnsupportedError(f"An index has one column, not {', '.join(columns)}. Create an index for each.")
    kind = given["kind"].upper()
    create: Any = dataset.create_index if kind in INDEX_TYPES else dataset.create_scalar_index
    create(columns[0], kind, name=given["index"], replace=False, **settings)
    return {}


def _value(text: str) -> Any:
    """Return a number, true or false, else the text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _drop_index(dataset: LanceDataset, given: Given) -> Answer:
    dataset.drop_index(given["index"])
    return {}


def _index_names(dataset: LanceDataset, _: Given) -> Answer:
    return {"names": "/".join(index.name for index in dataset.describe_indices())}


# ---------------------------------------------------------------------------------------------------------- procedures


def _truncate(dataset: LanceDataset, _: Given) -> Answer:
    dataset.delete("true")
    return {}


def _optimize(dataset: LanceDataset, given: Given) -> Answer:
    target = _arguments(given).get("target_rows_per_fragment")
    done = dataset.optimize.compact_files(target_rows_per_fragment=None if target is None else int(target))
    return {"values": [done.fragments_removed, done.fragments_added, done.files_removed, done.files_added]}


def _vacuum(dataset: LanceDataset, given: Given) -> Answer:
    arguments = _arguments(given)
    hours, versions = arguments.get("retention_hours"), arguments.get("retain_versions")
    done = dataset.cleanup_old_versions(
        None if hours is None else timedelta(hours=float(hours)),
        None if versions is None else int(versions),
        error_if_tagged_old_versions=False,
    )
    return {"values": [done.old_versions, done.bytes_removed]}


def _restore(dataset: LanceDataset, given: Given) -> Answer:
    arguments = _arguments(given)
    if len(arguments) != 1:
        raise InvalidInputError("Specify either a version or a timestamp to restore.")
    if "timestamp" in arguments:
        moment = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=int(arguments["timestamp"]))
        old = dataset.checkout_version(find_version_as_of(dataset.snapshot.store, moment))
    else:
        version = arguments["version"]
        old = dataset.checkout_version(int(version) if version.isdecimal() else version)
    old.restore()
    return {"values": [old.version]}


def _create_tag(dataset: LanceDataset, given: Given) -> Answer:
    arguments = _arguments(given)
    version = int(arguments.get("version", dataset.version))
    dataset.tags.create(arguments["tag"], version)
    return {"values": [version]}


def _drop_tag(dataset: LanceDataset, given: Given) -> Answer:
    name = _arguments(given)["tag"]
    version = dataset.tags.get_version(name)
    dataset.tags.delete(name)
    return {"values": [version]}


def _arguments(given: Given) -> dict[str, str]:
    return json.loads(given["arguments"])


COMMANDS: Mapping[str, Callable[[LanceDataset, Given], Answer]] = {
    "alter": _alter,
    "create_index": _create_index,
    "drop_index": _drop_index,
    "index_names": _index_names,
    "truncate": _truncate,
    "optimize": _optimize,
    "vacuum": _vacuum,
    "restore": _restore,
    "create_tag": _create_tag,
    "drop_tag": _drop_tag,
}
"""What each does with the newest version of a table, and what it answers."""
