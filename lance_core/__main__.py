"""Commands: ``python -m lance_core describe FILE|TABLE`` and ``python -m lance_core verify TABLE``."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from lance_core.describe import describe
from lance_core.errors import LanceError
from lance_core.maintenance.verify import LEVELS
from lance_core.verification import verify

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: Words of the command line; those of the process if None.

    Returns:
        Exit code: 0; 1 if something is wrong with the table or file; 2 if it could not be verified.
    """
    parsed = _parser().parse_args(arguments)
    options = dict(parsed.storage_option)
    is_verifying = parsed.command == "verify"
    try:
        if is_verifying:
            progress = _show_progress if sys.stderr.isatty() else None
            report = verify(parsed.uri, level=parsed.level, storage_options=options, progress=progress)
            sys.stdout.write(f"{report}\n")
            return 0 if report.is_ok else 1
        sys.stdout.write(describe(parsed.uri, storage_options=options, measure=not parsed.quick) + "\n")
    except (LanceError, OSError) as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 2 if is_verifying else 1
    return 0


def _show_progress(what: str, done: int, count: int) -> None:
    sys.stderr.write(f"\r\x1b[K{what} {done + 1:,} of {count:,}" if what != "done" else "\r\x1b[K")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lance_core", description="Look at Lance files and tables.")
    commands = parser.add_subparsers(dest="command", required=True)
    about = commands.add_parser("describe", help="what a data file or a table is made of")
    about.add_argument("uri", help="path or address")
    about.add_argument("--quick", action="store_true", help="do not read data to compare its size with Arrow's")
    sound = commands.add_parser("verify", help="whether a table is sound; exit code 1 if not, 2 if nobody can tell")
    sound.add_argument("uri", help="path or address")
    sound.add_argument("--level", choices=LEVELS, default=LEVELS[0], help="full reads all values, too")
    for command in (about, sound):
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
