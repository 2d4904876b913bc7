"""Options of the Spark data source, parsed and checked at once.

Spark hands over a dictionary of strings with lower-cased keys. An option that is unknown, or means nothing in the
direction it is given for, is an error: Spark would ignore it silently, and for example an ignored
``partitionOverwriteMode`` would wipe a table.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from lance_core.arguments import DEFAULT_MAX_BYTES_PER_FILE, DEFAULT_MAX_ROWS_PER_FILE
from lance_core.errors import InvalidInputError

# Spark adds these itself for tables and views in its catalog.
_CATALOG_KEYS = frozenset({"location", "provider", "owner", "serialization.format"})

DEFAULT_BATCH_SIZE = 16384

Parsed = TypeVar("Parsed", "ReadOptions", "WriteOptions")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What ``spark.read.format("lance").option(...)`` understands; all but ``path`` can be left out.

    Filters of Spark's own are not pushed down to the reader: pyspark 4.3.0 keeps them for the next query on the same
    DataFrame, which then misses rows. ``filter`` is the way to read less.

    Attributes:
        path: Address of the dataset.
        version: Version to read; the newest when the schema is asked for, if neither this nor ``tag`` is given.
        tag: Name of a tag to read instead of a version.
        columns: JSON list of top-level columns to read; all if not given.
        filter: SQL condition that is evaluated while reading; its columns need not be in ``columns``.
        batch_size: Most rows in one record batch.
        split_bytes: Bytes on disk that one partition should hold.
        split_rows: Rows that one partition should hold.
        min_partitions: Partitions to aim at for tables that are large enough to be worth it.
        with_row_id: Add the column ``_rowid``.
        with_row_address: Add the column ``_rowaddr``.
        storage_options: JSON object with options of the store.
    """

    path: str
    version: int | None = None
    tag: str | None = None
    columns: tuple[str, ...] | None = None
    filter: str | None = None
    batch_size: int = DEFAULT_BATCH_SIZE
    split_bytes: int = 128 << 20
    split_rows: int = 1 << 20
    min_partitions: int = 1
    with_row_id: bool = False
    with_row_address: bool = False
    storage_options: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        if self.version is not None and self.tag is not None:
            raise InvalidInputError("Give either the option version or the option tag, not both.")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """What ``df.write.format("lance").option(...)`` understands; all but ``path`` can be left out.

    Attributes:
        path: Address of the dataset; the first write creates it.
        mode: ``create`` refuses to add to a dataset that exists, whoever created it meanwhile.
        replace_where: With mode overwrite: SQL condition; only the rows that match it are replaced.
        token: Identity of this write. A write whose token a version already carries changes nothing.
        token_after: Only versions newer than this one can carry the token; if not given, a hundred are searched.
        transaction_properties: JSON object of strings to store with the version.
        max_rows_per_file: Rows after which a new file begins.
        max_bytes_per_file: Bytes after which a new file begins.
        data_storage_version: File format version of a new dataset.
        enable_stable_row_ids: Whether rows of a new dataset keep their id when they move.
        storage_options: JSON object with options of the store.
    """

    path: str
    mode: str | None = None
    replace_where: str | None = None
    token: str | None = None
    token_after: int | None = None
    transaction_properties: Mapping[str, str] | None = None
    max_rows_per_file: int = DEFAULT_MAX_ROWS_PER_FILE
    max_bytes_per_file: int = DEFAULT_MAX_BYTES_PER_FILE
    data_storage_version: str | None = None
    enable_stable_row_ids: bool = False
    storage_options: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        if self.mode not in (None, "create"):
            raise InvalidInputError(f"The option mode can only be create, got {self.mode!r}.")


def _text(text: str) -> str:
    if not text:
        raise ValueError
    return text


def _count(text: str) -> int:
    if int(text) < 1:
        raise ValueError
    return int(text)


def _number(text: str) -> int:
    if int(text) < 0:
        raise ValueError
    return int(text)


def _flag(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


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


_PARSERS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "path": ("an address", _text),
    "version": ("a version number", _count),
    "tag": ("the name of a tag", _text),
    "columns": ("a JSON list of column names", _names),
    "filter": ("an SQL condition", _text),
    "batch_size": ("a positive number of rows", _count),
    "split_bytes": ("a positive number of bytes", _count),
    "split_rows": ("a positive number of rows", _count),
    "min_partitions": ("a positive number", _count),
    "with_row_id": ("true or false", _flag),
    "with_row_address": ("true or false", _flag),
    "storage_options": ("a JSON object of strings", _strings),
    "mode": ("create", _text),
    "replace_where": ("an SQL condition", _text),
    "token": ("a text", _text),
    "token_after": ("a version number", _number),
    "transaction_properties": ("a JSON object of strings", _strings),
    "max_rows_per_file": ("a positive number of rows", _count),
    "max_bytes_per_file": ("a positive number of bytes", _count),
    "data_storage_version": ("a file format version such as 2.2", _text),
    "enable_stable_row_ids": ("true or false", _flag),
}


def parse_options(kind: type[Parsed], options: Mapping[str, str]) -> Parsed:
    """Parse the options Spark hands over.

    Args:
        kind: ReadOptions or WriteOptions.
        options: Keys are compared without regard to case.

    Raises:
        InvalidInputError: An option is unknown or has a wrong value, or the path is missing.
    """
    known = {field.name for field in fields(kind)}
    given = {key.lower(): value for key, value in options.items()}
    given = {key: value for key, value in given.items() if key not in _CATALOG_KEYS and not key.startswith("option.")}
    unknown = sorted(given.keys() - known)
    if unknown:
        raise InvalidInputError(f"Unknown option {', '.join(unknown)}; there are {', '.join(sorted(known))}.")
    if "path" not in given:
        raise InvalidInputError(
            "There is no path. Give the address of one dataset to load(...) or save(...); a table in Spark's catalog "
            "loses it, use CREATE TEMPORARY VIEW v USING lance OPTIONS (path '...') instead."
        )
    return kind(**{key: _parse(key, value) for key, value in given.items()})


def _parse(key: str, text: str) -> Any:
    expected, parser = _PARSERS[key]
    try:
        return parser(text)
    except (ValueError, KeyError):
        raise InvalidInputError(f"The option {key} must be {expected}, got {text!r}.") from None


def format_options(options: ReadOptions | WriteOptions) -> dict[str, str]:
    """The dictionary for Spark that ``parse_options`` turns into these options again; defaults are left out."""
    given = {field.name: getattr(options, field.name) for field in fields(options)}
    return {field.name: _format(given[field.name]) for field in fields(options) if given[field.name] != field.default}


def _format(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return json.dumps(list(value))
    return json.dumps(dict(value)) if isinstance(value, Mapping) else str(value)
