"""Commands that make and change tables: tag, untag, restore, compact, cleanup, repair, copy and import."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from lance_core.cli import output
from lance_core.cli.command import DONE, FOUND_PROBLEMS, Answer, Command, argument
from lance_core.cli.opening import BRANCH, TABLE, VERSION, count, duration, open_table, reference, storage_option
from lance_core.cli.progress import each, step_bar
from lance_core.importing.table import import_table
from lance_core.maintenance.verify import LEVELS
from lance_core.optimize import Compaction
from lance_core.reports.verification import plan_repair
from lance_core.reports.verification import repair as repair_table

if TYPE_CHECKING:
    from argparse import Namespace

    from lance_core.dataset import LanceDataset
    from lance_core.optimize import RewriteResult


def tag(arguments: Namespace) -> Answer:
    """Name a version."""
    table = open_table(arguments)
    if arguments.move and arguments.tag in table.tags.list():
        table.tags.update(arguments.tag)
    else:
        table.tags.create(arguments.tag)
    return _said(f"{arguments.tag} names version {table.version}", tag=arguments.tag, version=table.version)


def untag(arguments: Namespace) -> Answer:
    """Remove a tag."""
    open_table(arguments).tags.delete(arguments.tag)
    return _said(f"{arguments.tag} is removed", tag=arguments.tag)


def restore(arguments: Namespace) -> Answer:
    """Make an old version the newest."""
    table = open_table(arguments).checkout_version(arguments.to)
    old = table.version
    table.restore()
    return _said(f"version {table.version} is as version {old}", version=table.version, restored=old)


def compact(arguments: Namespace) -> Answer:
    """Merge small fragments."""
    table = open_table(arguments)
    given = {
        "target_rows_per_fragment": arguments.target_rows_per_fragment,
        "max_bytes_per_file": arguments.max_bytes_per_file,
    }
    options = {name: value for name, value in given.items() if value is not None}
    if arguments.dry_run:
        plan = Compaction.plan(table, options)
        fragments = [[fragment.id for fragment in task.fragments] for task in plan.tasks]
        told = f"{sum(map(len, fragments)):,} fragments would become {len(fragments):,} or more"
        return _said(told, version=table.version, fragments=fragments)

    def make(dataset: LanceDataset) -> list[RewriteResult]:
        tasks = Compaction.plan(dataset, options).tasks
        return [task.execute(dataset) for task in each(tasks, "compacting")]

    metrics = Compaction.repeat(table, make)
    told = f"version {table.version}: {metrics.fragments_removed:,} fragments became {metrics.fragments_added:,}"
    return _said(told if metrics.fragments_removed else "nothing to do", version=table.version, **asdict(metrics))


def cleanup(arguments: Namespace) -> Answer:
    """Delete old versions."""
    table = open_table(arguments)
    rules: dict[str, Any] = {
        "older_than": arguments.older_than,
        "retain_versions": arguments.retain_versions,
        "error_if_tagged_old_versions": False,
    }
    if arguments.dry_run:
        explained = table.explain_cleanup_old_versions(**rules)
        numbers = asdict(explained.stats)
        files = [asdict(file) for file in explained.candidate_files]
        would = [f"would delete {output.printable(file['path'])}" for file in files]
        return Answer(lines=[*would, _cleaned(numbers, "would go")], document={**numbers, "files": files})
    numbers = asdict(table.cleanup_old_versions(**rules))
    return Answer(lines=[_cleaned(numbers, "deleted")], document=numbers)


def repair(arguments: Namespace) -> Answer:
    """Repair a table."""
    given: dict[str, Any] = {"level": arguments.level, "storage_options": dict(arguments.storage_option)}
    with step_bar() as progress:
        plan = plan_repair(arguments.table, progress=progress, **given)
        if arguments.dry_run:
            code = FOUND_PROBLEMS if plan.steps or plan.unrepaired else DONE
            lines = [output.printable(line) for line in str(plan).splitlines()]
            return Answer(lines=lines, document=plan.asdict(), exit_code=code)
        outcome = repair_table(arguments.table, allow_loss=arguments.allow_loss, progress=progress, **given)
    lines = [f"{output.printable(target)}: {done}" for target, done in outcome.items()]
    lines += [f"not repaired: {output.printable(str(problem))}" for problem in plan.unrepaired]
    document = {"done": outcome, "plan": plan.asdict()}
    code = FOUND_PROBLEMS if plan.unrepaired else DONE
    return Answer(lines=lines or ["nothing to do"], document=document, exit_code=code)


def copy(arguments: Namespace) -> Answer:
    """Copy a version."""
    table = open_table(arguments)
    options = dict(arguments.storage_option) or None
    clone = table.shallow_clone if arguments.shallow else table.deep_clone
    made = clone(os.fspath(arguments.target), storage_options=options)
    return _said(f"{made.uri}: {made.count_rows():,} rows", uri=made.uri, version=made.version)


def import_(arguments: Namespace) -> Answer:
    """Import a table of another format."""
    with step_bar() as progress:
        made = import_table(
            arguments.source,
            arguments.target,
            format=arguments.format,
            source_version=arguments.source_version,
            source_options=dict(arguments.source_option),
            storage_options=dict(arguments.storage_option),
            progress=progress,
        )
    told = f"version {made.version} equals version {made.source_version} of the source: {made.rows:,} rows written"
    return _said(told if made.commits else "nothing to do", **asdict(made))


def _said(line: str, **document: Any) -> Answer:
    return Answer(lines=[line], document=document)


def _cleaned(numbers: dict[str, int], done: str) -> str:
    files = sum(value for name, value in numbers.items() if name.endswith("_files_removed"))
    return f"{numbers['old_versions']:,} versions and {files:,} files, {output.size(numbers['bytes_removed'])}, {done}"


_TAG = argument("tag", "name of the tag")
_DRY_RUN = argument("--dry-run", "only tell what would be done", action="store_true")

COMMANDS = (
    Command(
        name="tag",
        summary="name a version, so that clean-up keeps it",
        run=tag,
        arguments=(
            TABLE,
            _TAG,
            VERSION,
            BRANCH,
            argument("--move", "let a tag that is there name this version", action="store_true"),
        ),
    ),
    Command(name="untag", summary="remove a tag; its version stays", run=untag, arguments=(TABLE, _TAG)),
    Command(
        name="restore",
        summary="make an old version the newest again, as a new version",
        run=restore,
        arguments=(TABLE, argument("to", "number or tag of the version", type=reference), BRANCH),
    ),
    Command(
        name="compact",
        summary="merge small fragments and drop deleted rows",
        run=compact,
        arguments=(
            TABLE,
            argument("--target-rows-per-fragment", "rows of a fragment", type=count),
            argument("--max-bytes-per-file", "bytes of a data file", type=count),
            BRANCH,
            _DRY_RUN,
        ),
    ),
    Command(
        name="cleanup",
        summary="delete old versions and the files that only they need; tagged versions stay",
        run=cleanup,
        arguments=(
            TABLE,
            argument("--older-than", "only versions older than this, such as 12h; 14d without a rule", type=duration),
            argument("--retain-versions", "never the newest so many", type=count),
            BRANCH,
            _DRY_RUN,
        ),
    ),
    Command(
        name="repair",
        summary="make a damaged table readable again: versions, lost files, tags, branches and indices",
        run=repair,
        arguments=(
            TABLE,
            argument(
                "--level", "full also finds files whose bytes have changed", choices=LEVELS[:2], default=LEVELS[0]
            ),
            argument("--allow-loss", "also do steps that lose rows, or bring deleted rows back", action="store_true"),
            _DRY_RUN,
        ),
    ),
    Command(
        name="copy",
        summary="copy a version into a table of its own",
        run=copy,
        arguments=(
            TABLE,
            argument("target", "path or address of the new table"),
            VERSION,
            BRANCH,
            argument("--shallow", "share the data files instead of copying them", action="store_true"),
        ),
    ),
    Command(
        name="import",
        summary="make a table equal to a Parquet, Delta or Iceberg table, the first time or again",
        run=import_,
        arguments=(
            argument("source", "folder or file, address of a Delta table, or Iceberg metadata file or catalog.name"),
            argument("target", "path or address of the Lance table"),
            argument("--format", "format of the source", choices=("parquet", "delta", "iceberg")),
            argument("--source-version", "number of a Delta version, or id of an Iceberg snapshot"),
            argument(
                "--source-option",
                "setting to read the source; may be repeated",
                action="append",
                default=[],
                type=storage_option,
                metavar="KEY=VALUE",
            ),
        ),
    ),
)
