"""The reference page of the command line: ``python -m lance_core.cli.reference`` prints it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from lance_core.cli.main import COMMANDS, PROGRAM

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lance_core.cli.command import Argument, Command

_INTRODUCTION = f"""# The command line

`{PROGRAM} COMMAND` looks at a Lance table and takes care of it; `python -m lance_core COMMAND` is the same. The table
is a path or an address such as `s3://bucket/table.lance`. Each command but `describe` takes `--json` for programs, rows
as one object a line, and each `--storage-option KEY=VALUE`; progress is shown when standard error is a terminal.

Exit codes: 0 when all is done, 1 when `verify` or `repair` found problems that stay, 2 when the command could not do
its work, 130 when it was interrupted. With the extra `completion`, `eval "$({PROGRAM} completion bash)"` completes
commands and options.
"""


def page() -> str:
    """Return the page in Markdown."""
    listing = [f"| [`{command.name}`](#{command.name}) | {command.summary} |" for command in COMMANDS]
    parts = [_INTRODUCTION, "\n".join(["| | |", "|---|---|", *listing, ""])]
    return "\n".join([*parts, *("\n".join(_section(command)) for command in COMMANDS)])


def _section(command: Command) -> Iterator[str]:
    positional = [argument for argument in command.arguments if not _is_option(argument)]
    usage = " ".join(
        f"[{argument.name.upper()}]" if argument.settings.get("nargs") == "?" else argument.name.upper()
        for argument in positional
    )
    yield f"## {command.name}\n"
    yield f"{command.summary[0].upper()}{command.summary[1:]}.\n"
    yield f"```\n{PROGRAM} {command.name} {usage}\n```\n"
    yield "| | |\n|---|---|"
    for argument in command.arguments:
        yield f"| `{_shown(argument)}` | {_meaning(argument)} |"
    yield ""


def _is_option(argument: Argument) -> bool:
    return argument.name.startswith("--")


def _shown(argument: Argument) -> str:
    takes_value = _is_option(argument) and argument.settings.get("action", "append") == "append"
    metavar = argument.settings.get("metavar", argument.name.removeprefix("--").replace("-", "_").upper())
    return f"{argument.name} {metavar}" if takes_value else argument.name if _is_option(argument) else metavar


def _meaning(argument: Argument) -> str:
    default, choices = argument.settings.get("default"), argument.settings.get("choices")
    notes = [f"one of {', '.join(map(str, choices))}"] if choices else []
    notes += [f"default {default}"] if default not in (None, []) else []
    return "; ".join([argument.help, *notes])


if __name__ == "__main__":
    sys.stdout.write(page())
