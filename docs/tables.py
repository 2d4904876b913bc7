"""Tables of the reference that are made of the code: errors, SQL functions, settings, options, the environment."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from lance_core import errors, telemetry
from lance_core.common.limits import Limits
from lance_core.file import integrity
from lance_core.spark.common.options import WriteOptions
from lance_core.spark.common.read_options import ReadOptions
from lance_core.sql import choices, json_functions, list_functions, number_functions, text_functions, time_functions
from lance_core.store import trust
from lance_core.table import runtime
from lance_dagster import metadata, setting_keys
from lance_dagster.versions import branches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

ENVIRONMENT = {
    integrity.VARIABLE: "when checksums are verified: `all` (default), `scan` (not where single rows are read), `off`",
    runtime.COMMIT_TIMEOUT_VARIABLE: "seconds for which a commit is tried again beside other writers; 600",
    telemetry.PROGRESS_VARIABLE: "progress bars: `0` never, `1` also where standard input is no terminal",
    telemetry.SLOW_CALL_VARIABLE: "seconds after which a call of an object store is logged as slow; 5",
    trust.BASE_PATHS_VARIABLE: "places that tables may name; see [security](../docs/security.md)",
    branches.BRANCH_VARIABLE: "branch of all tables of a deployment, for `deployment_branch()`",
}
SETTINGS = {
    "as_of": "the newest version before this time, such as `2026-11-01T00:00:00+00:00`",
    "branch": "branch of the table; also of one run, by its tag",
    "columns": "list of the columns to load, in this order",
    "compression_profile": "`fast`, `balanced` or `small`, for a table that is created or overwritten",
    "filter": "SQL condition of the rows to load",
    "indices": 'kinds of indices by column, which maintenance keeps up to date: `{"id": "BTREE"}`',
    "merge_keys": "columns that tell rows apart in the mode `merge`",
    "mode": "`overwrite` (the default; with partitions it is `replace_partitions`), `append`, `merge`; `error` and "
    "`ignore` if there is a table already",
    "out_of_partition": "rows outside of the run's partitions: `error` (the default), `drop` or `allow`",
    "partition_expr": "column or SQL expression that holds the partition; a dict for several dimensions",
    "primary_key": "the same as `merge_keys`",
    "read": "`latest` (the default), or `materialized`: the version that Dagster recorded",
    "schema_mode": "columns that differ from the table's: `strict`, `add`, `overwrite`, or `auto` (the default): "
    "`overwrite` where the whole table is replaced, else `strict`",
    "shared": "true lets several assets write to one table on purpose",
    "tag": "tag of the version to load",
    "uri": "another place of the table than below the root",
    "version": "number or tag of the version to load",
}
"""Meanings of the settings of lance_dagster."""
_OWNERS = {
    "Metadata of an asset or output": setting_keys.ASSET,
    "Metadata of an input": setting_keys.INPUT,
    "Run tags": setting_keys.RUN_TAGS,
}
_SQL = {
    "Choices": choices.CHOICE_FUNCTIONS,
    "Numbers": number_functions.NUMBER_FUNCTIONS,
    "Texts": text_functions.TEXT_FUNCTIONS,
    "Times": time_functions.TIME_FUNCTIONS,
    "Lists": list_functions.LIST_FUNCTIONS,
    "JSON": json_functions.JSON_FUNCTIONS,
}
_MANY = 100
"""A function that takes so many arguments takes any number."""


def errors_page() -> str:
    """Return the page of errors, by kind."""
    classes = [
        value for value in vars(errors).values() if inspect.isclass(value) and value.__module__ == errors.__name__
    ]
    rows = [
        (f"`{cls.kind}`", f"`{cls.__name__}`", _bases(cls), _summary(cls))
        for cls in classes
        if issubclass(cls, errors.LanceError)
    ]
    text = "Errors that are raised on purpose. `error.kind` is for programs, the message for people."
    return _page("Errors by kind", text, _table(("kind", "class", "also a", "meaning"), sorted(rows)))


def sql_page() -> str:
    """Return the page of SQL functions."""
    parts: list[str] = []
    for title, functions in _SQL.items():
        rows = [(f"`{name}`", _arguments(fewest, most)) for name, (fewest, most, _) in sorted(functions.items())]
        parts += [f"## {title}\n", _table(("function", "arguments"), rows)]
    text = "Functions of filters, computed columns, `update` and `dataset.sql`. Names are those of DataFusion."
    return _page("SQL functions", text, *parts)


def settings_page() -> str:
    """Return the page of metadata keys and run tags."""
    parts: list[str] = []
    for title, owner in _OWNERS.items():
        rows = [(_setting(name, owner.bare), SETTINGS[name]) for name in sorted(owner.settings)]
        parts += [f"## {title}\n", _table(("key", "meaning"), rows)]
    keys = ", ".join(f"`{key}`" for key in sorted(metadata.REPORTED_KEYS))
    parts += ["## Metadata that runs write\n", f"{keys}.\n"]
    text = (
        "Programs that use them: [how-to](../docs/how-to.md). The second form of a key is its short one. An unknown "
        "key with the prefix `lance/` is an error."
    )
    return _page("Metadata keys and run tags", text, *parts)


def spark_page() -> str:
    """Return the page of options of the Spark data source."""
    parts: list[str] = []
    for title, options in {"Reading": ReadOptions, "Writing": WriteOptions}.items():
        rows = [(f"`{name}`", meaning) for name, meaning in _attributes(options)]
        parts += [f"## {title}\n", _table(("option", "meaning"), rows)]
    return _page("Options of the Spark data source", "Names may have any case.", *parts)


def environment_page() -> str:
    """Return the page of environment variables."""
    meanings = dict(_attributes(Limits))
    limits = [
        (f"`LANCE_CORE_{limit.name.upper()}`", f"{meanings[limit.name]} {limit.default:,}") for limit in fields(Limits)
    ]
    rows = [(f"`{name}`", meaning) for name, meaning in ENVIRONMENT.items()]
    parts = [_table(("variable", "meaning"), rows), "## Limits of what a file may ask for\n"]
    text = "Those of object stores are those of their own tools: [object stores](../docs/object-stores.md)."
    return _page("Environment variables", text, *parts, _table(("variable", "at most, and the default"), limits))


PAGES_OF_TABLES: dict[str, Callable[[], str]] = {
    "errors-by-kind": errors_page,
    "sql-functions": sql_page,
    "settings": settings_page,
    "spark-options": spark_page,
    "environment": environment_page,
}
"""Pages by name."""


def _setting(name: str, short: frozenset[str]) -> str:
    return f"`lance/{name}`" + (f", `{name}`" if name in short else "")


def _page(title: str, *parts: str) -> str:
    return "\n".join([f"# {title}\n", f"{parts[0]}\n", *parts[1:]])


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [" | ".join(head), "|".join("---" for _ in head), *(" | ".join(row) for row in rows)]
    return "\n".join([*(f"| {line} |" for line in lines), ""])


def _summary(value: Any) -> str:
    return (inspect.getdoc(value) or "").partition("\n\n")[0].replace("\n", " ")


def _bases(cls: type) -> str:
    return ", ".join(f"`{base.__name__}`" for base in cls.__bases__ if base.__module__ == "builtins")


def _arguments(fewest: int, most: int) -> str:
    if fewest == most:
        return str(fewest)
    return f"{fewest} or more" if most >= _MANY else f"{fewest} to {most}"


def _attributes(cls: type) -> list[tuple[str, str]]:
    """Return the attributes that a docstring lists, with their meanings."""
    listed = (inspect.getdoc(cls) or "").partition("Attributes:\n")[2]
    found = re.findall(r"^    (\w+): (.*(?:\n {8,}.*)*)", listed, re.MULTILINE)
    return [(name, re.sub(r"\s+", " ", meaning).replace("|", "\\|").replace("``", "`")) for name, meaning in found]
