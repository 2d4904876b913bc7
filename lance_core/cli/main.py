"""The entry point: parses the words, runs the command, prints its answer."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from lance_core import __version__
from lance_core.cli import about, changes, output, rows
from lance_core.cli.command import FAILED, INTERRUPTED
from lance_core.cli.completion import COMMANDS as COMPLETION
from lance_core.cli.opening import JSON, STORAGE_OPTION
from lance_core.errors import LanceError

if TYPE_CHECKING:
    from collections.abc import Sequence

PROGRAM = "lance-core"
COMMANDS = (*about.COMMANDS, *rows.COMMANDS, *changes.COMMANDS, *COMPLETION)
COMMON = (STORAGE_OPTION, JSON)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: Words of the command line; those of the process if None.

    Returns:
        Exit code: 0 when all is done; 1 if ``verify`` or ``repair`` found problems that stay; 2 if the command could
        not do its work; 130 if it was interrupted.
    """
    parsed = parser().parse_args(arguments)
    try:
        answer = parsed.run(parsed)
        for line in output.write(answer, as_json=parsed.json):
            sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
    except BrokenPipeError:  # whoever reads has enough, as with `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except (LanceError, OSError) as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    return answer.exit_code


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    whole = argparse.ArgumentParser(prog=PROGRAM, description="Look at Lance tables, and take care of them.")
    whole.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    commands = whole.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS:
        each = commands.add_parser(command.name, help=command.summary, description=f"{command.summary.capitalize()}.")
        for argument in (*command.arguments, *COMMON):
            each.add_argument(argument.name, help=argument.help, **argument.settings)
        each.set_defaults(run=command.run, parser=whole)
    return whole
