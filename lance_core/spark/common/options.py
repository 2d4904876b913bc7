"""Options of the Spark data source, parsed and checked at once.

Spark hands over a dictionary of strings with lower-cased keys. An option that is unknown, or means nothing in the
direction it is given for, is an error: Spark would ignore it silently, and for example an ignored
``partitionOverwriteMode`` would wipe a table.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, TypeVar

from lance_core.encoding.profiles import CompressionProfile, checked_profile
from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.methods.arguments import DEFAULT_MAX_BYTES_PER_FILE, DEFAULT_MAX_ROWS_PER_FILE
from lance_core.spark.common.read_options import PLACES_IN_TIME, ReadOptions
from lance_core.values.table_id import find_table, table_to_write

# Spark adds these itself for tables and views in its catalog.
_CATALOG_KEYS = frozenset({"location", "provider", "owner", "serialization.format"})

# How writers for other connectors spell options that mean the same.
_OTHER_NAMES = {
    "max_row_per_file": "max_rows_per_file",
    "versionasof": "version",
    "timestampasof": "timestamp",
    "merge-schema": "merge_schema",
    "targetfilesize": "max_bytes_per_file",
    "target_file_size": "max_bytes_per_file",
    "target-file-size-bytes": "max_bytes_per_file",
}

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}

PINNING_OPTIONS = frozenset((*PLACES_IN_TIME, *(key for key, name in _OTHER_NAMES.items() if name in PLACES_IN_TIME)))
"""Options that name a version, in the spelling of all connectors; in lower case."""

# Options of lance-spark's writer that change nothing in the result.
_WRITE_HINTS = frozenset({"max_rows_per_group", "batch_size", "use_queued_write_buffer", "queue_depth"})

Parsed = TypeVar("Parsed", ReadOptions, "WriteOptions")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Options of ``df.write.format("lance")``; all but ``path`` have defaults.

    Attributes:
        path: Address of the dataset; the first write creates it.
        mode: ``create`` refuses to add to a dataset that exists, whoever created it meanwhile.
        branch: Branch to write to, which must exist.
        replace_where: With mode overwrite: SQL condition; only the rows that match it are replaced.
        check_replace_where: Whether all rows of the DataFrame must match it, too.
        partition_overwrite_by: With mode overwrite: JSON list of columns; only the rows that have the same values in
            them as some row of the DataFrame are replaced.
        idempotency_key: Identity of this write. A write whose key one of the newest hundred versions already carries
            changes nothing.
        commit_message: Text for the history.
        transaction_properties: JSON object of strings to store with the version.
        max_rows_per_file: Rows after which a new file begins.
        max_bytes_per_file: Encoded bytes after which a new file begins, such as 134217728 or 128m. Its other name is
            ``target_file_size``.
        distribution: ``auto``: tiny tasks are put together, which moves no rows. ``none``: the tasks are those of the
            DataFrame. ``balance``: Spark moves the rows to tasks of about equal size. Only in classic sessions with
            `lance_core.spark.register`; elsewhere ``auto`` is ``none``, and ``balance`` an error.
        data_storage_version: File format version; that of the dataset, or the default of a new one, if not given.
        compression_profile: ``fast``, ``balanced`` or ``small``, for a dataset that is created or overwritten.
        enable_stable_row_ids: Whether rows of a new dataset keep their id when they move.
        merge_schema: Add the columns of the DataFrame that the dataset lacks; without it they are an error.
        case_sensitive: Allow columns of a dataset that is created or overwritten to differ in case only. Sessions with
            ``spark.sql.caseSensitive=false``, the default, cannot read such a dataset.
        table_config: JSON object of strings: configuration of a dataset that is created or overwritten.
        storage_options: JSON object with options of the store.
        base_store_params: JSON object that has such an object for each other place that the table may name.
    """

    path: str
    mode: str | None = None
    branch: str | None = None
    replace_where: str | None = None
    check_replace_where: bool = True
    partition_overwrite_by: tuple[str, ...] | None = None
    idempotency_key: str | None = None
    commit_message: str | None = None
    transaction_properties: Mapping[str, str] | None = None
    max_rows_per_file: int = DEFAULT_MAX_ROWS_PER_FILE
    max_bytes_per_file: int = DEFAULT_MAX_BYTES_PER_FILE
    distribution: str = "auto"
    data_storage_version: str | None = None
    compression_profile: CompressionProfile | None = None
    enable_stable_row_ids: bool = False
    merge_schema: bool = False
    case_sensitive: bool = False
    table_config: Mapping[str, str] | None = None
    storage_options: Mapping[str, str] | None = field(default=None, repr=False)
    base_store_params: Mapping[str, Mapping[str, str]] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.mode not in (None, "create"):
            raise InvalidInputError(f"The option 'mode' can only be 'create', got {self.mode!r}.")
        if self.distribution == "balance":  # the planner rule, where it is installed, removes the option
            raise UnsupportedError(
                "The option 'distribution' is 'balance', which needs a classic session after register(spark). "
                "Call write_lance(df, uri, distribution='balance') instead, or df.hint('rebalance') before the write."
            )
        if self.distribution not in ("auto", "none"):
            raise InvalidInputError(
                f"The option 'distribution' must be auto, none or balance, got {self.distribution!r}."
            )

    @property
    def replaces(self) -> bool:
        """Return whether only some rows of the table are overwritten."""
        return self.replace_where is not None or bool(self.partition_overwrite_by)


def _text(text: str) -> str:
    if not text:
        raise ValueError
    return text


def _address(text: str) -> str:
    """Spark's catalog writes paths of the local file system as ``file:/...``."""
    return _text(text.removeprefix("file:") if text.startswith("file:/") and text[6:7] != "/" else text)


def _count(text: str) -> int:
    if int(text) < 1:
        raise ValueError
    return int(text)


def _size(text: str) -> int:
    number = text.lower().removesuffix("b")
    unit = number[-1:] if number[-1:] in _UNITS else ""
    return _count(number.removesuffix(unit).strip()) * _UNITS[unit]


def _flag(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


def _moment(text: str) -> str:
    if datetime.fromisoformat(text).tzinfo is None:
        raise ValueError
    return text


def _names(text: str) -> tuple[str, ...]:
    names = json.loads(text)
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise ValueError
    return tuple(names)


def _strings(text: str) -> dict[str, str]:
    pairs = json.loads(text)
    if not isinstance(pairs, dict) or not all(isinstance(value, str) for value in pairs.values()):
        raise ValueError
    return pairs


def _parse_base_options(text: str) -> dict[str, dict[str, str]]:
    params = json.loads(text)
    if not isinstance(params, dict) or not all(isinstance(options, dict) for options in params.values()):
        raise ValueError
    return {address: _strings(json.dumps(options)) for address, options in params.items()}


def _namespace(text: str) -> dict[str, str]:
    properties = _strings(text)
    if "impl" not in properties:
        raise ValueError
    return properties


_NAMESPACE, _TABLE_ID = "namespace", "tableid"
_SECRET = frozenset({"storage_options", "base_store_params", _NAMESPACE})

_PARSERS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "path": ("an address", _address),
    "namespace": ("a JSON object of strings with 'impl' (dir, rest, ...) and properties", _namespace),
    "table_id": ("a JSON list of names", _names),
    "version": ("a version number", _count),
    "tag": ("the name of a tag", _text),
    "branch": ("the name of a branch", _text),
    "timestamp": ("a point in time with its offset from UTC, such as 2026-01-31T12:00:00+01:00", _moment),
    "limit": ("a positive number of rows", _count),
    "columns": ("a JSON list of column names", _names),
    "filter": ("an SQL condition", _text),
    "pushdown": ("true or false", _flag),
    "batch_size": ("a positive number of rows", _count),
    "split_bytes": ("a positive number of bytes", _count),
    "split_rows": ("a positive number of rows", _count),
    "min_partitions": ("a positive number", _count),
    "with_row_id": ("true or false", _flag),
    "with_row_address": ("true or false", _flag),
    "with_row_versions": ("true or false", _flag),
    "blob_handling": ("blobs_descriptions or all_binary", _text),
    "truncate_nanoseconds": ("true or false", _flag),
    "read_change_feed": ("true or false", _flag),
    "starting_version": ("a version number, a tag, earliest or latest", _text),
    "ending_version": ("a version number", _count),
    "starting_timestamp": ("a point in time with its offset from UTC", _moment),
    "max_rows_per_batch": ("a positive number of rows", _count),
    "max_bytes_per_batch": ("a positive number of bytes", _count),
    "skip_change_commits": ("true or false", _flag),
    "ignore_deletes": ("true or false", _flag),
    "ignore_changes": ("true or false", _flag),
    "storage_options": ("a JSON object of strings", _strings),
    "base_store_params": ("a JSON object of JSON objects of strings", _parse_base_options),
    "mode": ("create", _text),
    "replace_where": ("an SQL condition", _text),
    "check_replace_where": ("true or false", _flag),
    "partition_overwrite_by": ("a JSON list of column names", _names),
    "idempotency_key": ("a text", _text),
    "commit_message": ("a text", _text),
    "table_config": ("a JSON object of strings", _strings),
    "transaction_properties": ("a JSON object of strings", _strings),
    "max_rows_per_file": ("a positive number of rows", _count),
    "max_bytes_per_file": ("a positive number of bytes, such as 134217728 or 128m", _size),
    "distribution": ("auto, none or balance", str.lower),
    "data_storage_version": ("a file format version such as 2.2", _text),
    "compression_profile": ("fast, balanced or small", checked_profile),
    "enable_stable_row_ids": ("true or false", _flag),
    "merge_schema": ("true or false", _flag),
    "case_sensitive": ("true or false", _flag),
}


def parse_options(kind: type[Parsed], options: Mapping[str, str]) -> Parsed:
    """Parse the options Spark hands over.

    Args:
        kind: ReadOptions or WriteOptions.
        options: Keys are compared without regard to case and underscores, so that ``startingVersion`` is one, too.

    Raises:
        InvalidInputError: An option is unknown or has a wrong value, or the path is missing.
    """
    names = {field.name.replace("_", ""): field.name for field in fields(kind)}
    given: dict[str, str] = {}
    unknown: list[str] = []
    for key, value in ((key.lower(), value) for key, value in _located(kind, options).items()):
        if _is_ignored(key, kind):
            continue
        name = names.get(_OTHER_NAMES.get(key, key).replace("_", ""))
        if name is None:
            unknown.append(key)
        elif given.setdefault(name, value) != value:
            raise InvalidInputError(f"The option '{name}' is given twice, as {given[name]!r} and {value!r}.")
    if unknown:
        names_ = ", ".join(sorted(names.values()))
        raise InvalidInputError(f"Unknown option {', '.join(map(repr, sorted(unknown)))}; the options are: {names_}.")
    if "path" not in given:
        raise InvalidInputError(
            "The path is missing. Pass the address of one dataset to load(...) or save(...). Tables in "
            "Spark's catalog lose it: use CREATE TEMPORARY VIEW v USING lance OPTIONS (path '...') instead."
        )
    return kind(**{key: _parse(key, value) for key, value in given.items()})


def _located(kind: type[Any], options: Mapping[str, str]) -> Mapping[str, str]:
    """Return options with the path and the storage options of a table that is given by its name in a namespace."""
    keys = {key.lower().replace("_", ""): key for key in options}
    if _NAMESPACE not in keys and _TABLE_ID not in keys:
        return options
    if not {_NAMESPACE, _TABLE_ID} <= keys.keys() or "path" in keys:
        raise InvalidInputError("Give either the path, or the options 'namespace' and 'table_id'.")
    from lance_core.namespace import connect  # noqa: PLC0415 an extra

    rest = dict(options)
    namespace = _parse("namespace", rest.pop(keys[_NAMESPACE]))
    names = _parse("table_id", rest.pop(keys[_TABLE_ID]))
    key = keys.get("storageoptions", "storage_options")
    given = _parse("storage_options", rest.get(key, "{}"))
    client = connect(namespace.pop("impl"), namespace)
    if kind is ReadOptions:
        path, given = find_table(None, client, names, given)
    else:
        path, given = table_to_write(None, client, names, "append", given)
    return {**rest, "path": path, key: json.dumps(given)}


def _is_ignored(key: str, kind: type[Any]) -> bool:
    return key in _CATALOG_KEYS or key.startswith("option.") or (kind is WriteOptions and key in _WRITE_HINTS)


def _parse(key: str, text: str) -> Any:
    expected, parser = _PARSERS[key]
    try:
        return parser(text)
    except (ValueError, KeyError):
        got = "something else (not shown: it may hold keys)" if key in _SECRET else repr(text)
        raise InvalidInputError(f"The option '{key}' must be {expected}, got {got}.") from None


def format_options(options: ReadOptions | WriteOptions) -> dict[str, str]:
    """Return the dictionary for Spark that ``parse_options`` turns into these options again; defaults are left out."""
    given = {field.name: getattr(options, field.name) for field in fields(options)}
    return {field.name: _format(given[field.name]) for field in fields(options) if given[field.name] != field.default}


def _format(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return json.dumps(list(value))
    return json.dumps(dict(value)) if isinstance(value, Mapping) else str(value)
