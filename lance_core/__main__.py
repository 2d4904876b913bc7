"""Commands: ``python -m lance_core describe FILE|TABLE``."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from lance_core.describe import describe
from lance_core.errors import LanceError

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: Words of the command line; those of the process if None.

    Returns:
        Exit code: 0, or 1 if something is wrong with the table or file.
    """
    parsed = _parser().parse_args(arguments)
    options = dict(parsed.storage_option)
    try:
        sys.stdout.write(describe(parsed.uri, storage_options=options, measure=not parsed.quick) + "\n")
    except LanceError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lance_core", description="Look at Lance files and tables.")
    commands = parser.add_subparsers(dest="command", required=True)
    about = commands.add_parser("describe", help="what a data file or a table is made of")
    about.add_argument("uri", help="path or address")
    about.add_argument("--quick", action="store_true", help="do not read data to compare its size with Arrow's")
    for command in (about,):
        command.add_argument(
            "--storage-option", action="append", default=[], type=_option, metavar="KEY=VALUE", help="may be repeated"
        )
    return parser


def _option(text: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not sign:
        raise argparse.ArgumentTypeError("KEY=VALUE")
    return key, value


if __name__ == "__main__":
    sys.exit(main())
