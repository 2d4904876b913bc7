"""The command that prints a completion script."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_core.cli.command import Answer, Command, argument
from lance_core.errors import UnsupportedError

if TYPE_CHECKING:
    from argparse import Namespace

_SHELLS = ("bash", "zsh", "tcsh")


def completion(arguments: Namespace) -> Answer:
    """Print a script for a shell.

    Raises:
        UnsupportedError: The package shtab is missing.
    """
    try:
        import shtab  # noqa: PLC0415 an extra
    except ImportError as error:
        raise UnsupportedError("completion needs the package shtab: pip install 'lance-dagster[completion]'") from error
    script: str = shtab.complete(arguments.parser, shell=arguments.shell)
    return Answer(lines=script.splitlines(), document={"shell": arguments.shell, "script": script})


COMMANDS = (
    Command(
        name="completion",
        summary="print a script that completes commands and options in a shell",
        run=completion,
        arguments=(argument("shell", "which shell", choices=_SHELLS),),
    ),
)
