"""Commands that tell what a table is: describe, schema, stats, history, tags, branches, indices, diff, verify."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC
from typing import TYPE_CHECKING, Any

from lance_core.cli import output
from lance_core.cli.command import DONE, FOUND_PROBLEMS, Answer, Command, argument
from lance_core.cli.opening import BRANCH, TABLE, VERSION, count, open_table, reference
from lance_core.cli.progress import step_bar
from lance_core.errors import InvalidInputError
from lance_core.maintenance.verify import LEVELS
from lance_core.reports.describe import describe as describe_text
from lance_core.reports.verification import verify as verify_table

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator, Mapping

    from lance_core.dataset import LanceDataset
    from lance_core.format.schema import Field

_NAMED = tuple[str, str, bool]
"""Path, type and whether nulls are allowed."""
_ROW_CHANGES = ("inserted", "updated", "deleted")


def describe(arguments: Namespace) -> Answer:
    """Describe a table or a data file."""
    if arguments.json:
        raise InvalidInputError("describe writes for people; for JSON use schema, stats, history, indices or diff")
    options = dict(arguments.storage_option)
    text = describe_text(arguments.table, storage_options=options, measure=not arguments.quick)
    return Answer(lines=text.splitlines(), document=None)


def schema(arguments: Namespace) -> Answer:
    """List the fields."""
    fields = [
        {"id": number, "field": path, "type": kind, "nullable": nullable}
        for number, (path, kind, nullable) in _fields_by_id(open_table(arguments)).items()
    ]
    return _listing(("id", "field", "type", "nullable"), fields)


def stats(arguments: Namespace) -> Answer:
    """Tell how much a version holds, and what its columns take."""
    table = open_table(arguments)
    numbers = table.table_statistics()
    paths = _fields_by_id(table)
    columns: list[dict[str, Any]] = [
        {"field": paths[each.id][0], "num_bytes": each.bytes_on_disk}
        for each in table.stats.data_stats().fields
        if each.bytes_on_disk
    ]
    document = {"uri": table.uri, "version": table.version, **numbers, "columns": columns}
    columns.sort(key=lambda column: column["num_bytes"], reverse=True)
    whole = max(sum(column["num_bytes"] for column in columns), 1)
    lines = [
        *output.table(("", "value"), list(numbers.items())),
        "",
        *output.table(
            ("column", "bytes", "share"),
            [(each["field"], each["num_bytes"], f"{each['num_bytes'] / whole:.1%}") for each in columns],
        ),
    ]
    return Answer(lines=lines, document=document)


def history(arguments: Namespace) -> Answer:
    """List versions, the newest first."""
    table = open_table(arguments)
    tags = defaultdict[int, list[str]](list)
    for name, tag in table.tags.list().items():
        if (tag["branch"] or None) == table.branch:
            tags[tag["version"]].append(name)
    versions = table.versions()
    document: list[dict[str, Any]] = []
    for entry in reversed(versions[max(len(versions) - arguments.limit, 0) :]):
        number, totals = entry["version"], entry["metadata"]
        transaction = table.read_transaction(number)
        document.append(
            {
                "version": number,
                "timestamp": entry["timestamp"].astimezone(UTC),
                "operation": type(transaction.operation).__name__ if transaction else None,
                "rows": int(totals["total_rows"]),
                "fragments": int(totals["total_fragments"]),
                "bytes": int(totals["total_files_size"]),
                "tags": sorted(tags[number]),
                "properties": dict(transaction.transaction_properties or {}) if transaction else {},
            }
        )
    rows = [
        (*list(entry.values())[:5], output.size(entry["bytes"]), ", ".join(entry["tags"]), entry["properties"] or "")
        for entry in document
    ]
    names = ("version", "UTC", "operation", "rows", "fragments", "size", "tags", "properties")
    return Answer(lines=output.table(names, _without_zone(rows)), document=document)


def tags(arguments: Namespace) -> Answer:
    """List tags."""
    listed = open_table(arguments).tags.list_ordered()
    named = [{"tag": name, **{key: tag[key] for key in ("version", "branch", "metadata")}} for name, tag in listed]
    return _listing(("tag", "version", "branch", "metadata"), named)


def branches(arguments: Namespace) -> Answer:
    """List branches."""
    listed = open_table(arguments).branches.list()
    names = ("branch", "parent_branch", "parent_version")
    entries = [{"branch": name, **{key: branch[key] for key in names[1:]}} for name, branch in listed.items()]
    return _listing(names, entries)


def indices(arguments: Namespace) -> Answer:
    """List indices."""
    table = open_table(arguments)
    rows = table.count_rows()
    listed = [
        {
            "index": index.name,
            "type": index.index_type,
            "fields": index.field_names,
            "segments": len(index.segments),
            "rows": index.num_rows_indexed,
            "uncovered_rows": rows - index.num_rows_indexed,
            "bytes": index.total_size_bytes,
        }
        for index in table.describe_indices()
    ]
    return _listing(("index", "type", "fields", "segments", "rows", "uncovered_rows", "bytes"), listed)


def diff(arguments: Namespace) -> Answer:
    """Compare two versions."""
    opened = open_table(arguments)
    old = opened.checkout_version(arguments.old)
    new = opened if arguments.new is None else opened.checkout_version(arguments.new)
    old_fields, new_fields = _fields_by_id(old), _fields_by_id(new)
    then, now = ({each.fragment_id: each.metadata for each in table.get_fragments()} for table in (old, new))
    numbers = old.table_statistics()
    document: dict[str, Any] = {
        "from": old.version,
        "to": new.version,
        "numbers": {key: [numbers[key], value] for key, value in new.table_statistics().items()},
        "fields_added": [named[0] for number, named in new_fields.items() if number not in old_fields],
        "fields_dropped": [named[0] for number, named in old_fields.items() if number not in new_fields],
        "fields_changed": [
            f"{_written(named)} -> {_written(new_fields[number])}"
            for number, named in old_fields.items()
            if new_fields.get(number, named) != named
        ],
        "fragments_added": [number for number in now if number not in then],
        "fragments_removed": [number for number in then if number not in now],
        "fragments_changed": [number for number, before in then.items() if now.get(number, before) != before],
    }
    if arguments.changed_rows:
        delta = new.delta(compared_against=old.version)
        readers = (delta.get_inserted_rows(), delta.get_updated_rows(), delta.get_deleted_row_ids())
        document["rows"] = dict(zip(_ROW_CHANGES, (sum(map(len, reader)) for reader in readers), strict=True))
    return Answer(lines=_difference(document), document=document)


def verify(arguments: Namespace) -> Answer:
    """Verify a table."""
    with step_bar() as progress:
        options = dict(arguments.storage_option)
        report = verify_table(arguments.table, level=arguments.level, storage_options=options, progress=progress)
    names = [name for name in type(report).__slots__ if not name.startswith("_") and name != "problems"]
    problems = [
        {name: getattr(problem, name) for name in ("kind", "message", "version", "fragment_id", "path", "index_name")}
        for problem in report.problems
    ]
    document = {"is_ok": report.is_ok} | {name: getattr(report, name) for name in names} | {"problems": problems}
    exit_code = DONE if report.is_ok else FOUND_PROBLEMS
    return Answer(lines=str(report).splitlines(), document=document, exit_code=exit_code)


def _listing(names: tuple[str, ...], entries: list[dict[str, Any]]) -> Answer:
    """Return entries with the same keys as a table; nothing to list is said."""
    rows = [["" if entry[name] in ({}, None) else _joined(entry[name]) for name in names] for entry in entries]
    return Answer(lines=output.table(names, rows) if rows else ["none"], document=entries)


def _joined(value: Any) -> Any:
    return ", ".join(map(str, value)) if isinstance(value, list) else value


def _without_zone(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [(number, time.replace(tzinfo=None, microsecond=0), *rest) for number, time, *rest in rows]


def _difference(document: Mapping[str, Any]) -> Iterator[str]:
    yield f"version {document['from']} -> {document['to']}"
    yield from output.table(("", "from", "to"), [(name, *pair) for name, pair in document["numbers"].items()])
    for name in ("fields_added", "fields_dropped", "fields_changed"):
        yield from (f"{name.replace('_', ' ')}: {output.cell(each)}" for each in document[name])
    for name in ("fragments_added", "fragments_removed", "fragments_changed"):
        if document[name]:
            yield f"{name.replace('_', ' ')}: {len(document[name]):,} ({output.cell(document[name])})"
    for name, changed in document.get("rows", {}).items():
        yield f"rows {name}: {changed:,}"


def _written(named: _NAMED) -> str:
    path, kind, nullable = named
    return f"{path} {kind}{'' if nullable else ' not null'}"


def _fields_by_id(table: LanceDataset) -> dict[int, _NAMED]:
    """Return path, type and nullability of all fields by id, parents first."""
    fields_by_id: dict[int, _NAMED] = {}

    def walk(fields: tuple[Field, ...], above: str) -> None:
        for field in fields:
            fields_by_id[field.id] = (f"{above}{field.name}", field.logical_type, field.nullable)
            walk(field.children, f"{above}{field.name}.")

    walk(table.snapshot.manifest.schema.fields, "")
    return fields_by_id


COMMANDS = (
    Command(
        name="describe",
        summary="tell what a table or a data file is made of: versions, fragments, encodings, sizes",
        run=describe,
        arguments=(
            argument("table", "path or address of the table or the data file"),
            argument("--quick", "read no data; sizes are not compared with Arrow's", action="store_true"),
        ),
    ),
    Command(name="schema", summary="list the fields", run=schema, arguments=(TABLE, VERSION, BRANCH)),
    Command(
        name="stats",
        summary="count rows, fragments, files and bytes, and what each column takes",
        run=stats,
        arguments=(TABLE, VERSION, BRANCH),
    ),
    Command(
        name="history",
        summary="list versions, the newest first: when, by what operation, how many rows",
        run=history,
        arguments=(TABLE, BRANCH, argument("--limit", "at most so many versions", type=count, default=20)),
    ),
    Command(name="tags", summary="list tags", run=tags, arguments=(TABLE,)),
    Command(name="branches", summary="list branches", run=branches, arguments=(TABLE,)),
    Command(
        name="indices",
        summary="list indices, and the rows that they do not cover",
        run=indices,
        arguments=(TABLE, VERSION, BRANCH),
    ),
    Command(
        name="diff",
        summary="compare two versions: rows, bytes, fields and fragments",
        run=diff,
        arguments=(
            TABLE,
            argument("old", "number or tag of the older version", type=reference),
            argument("new", "number or tag of the newer version; the newest if left out", type=reference, nargs="?"),
            argument("--changed-rows", "count changed rows too; needs stable row ids", action="store_true"),
            BRANCH,
        ),
    ),
    Command(
        name="verify",
        summary="check that a table is sound",
        run=verify,
        arguments=(
            TABLE,
            argument(
                "--level",
                "full also reads all values, indices compares indices with their columns",
                choices=LEVELS,
                default=LEVELS[0],
            ),
        ),
    ),
)
