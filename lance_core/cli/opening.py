"""Arguments that several commands share, and opening the table that they name."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from datetime import timedelta
from typing import TYPE_CHECKING

from lance_core.cli.command import argument
from lance_core.dataset import LanceDataset, dataset

if TYPE_CHECKING:
    from argparse import Namespace

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def reference(text: str) -> int | str:
    """Return a version number, or the name of a tag."""
    return int(text) if text.isdecimal() else text


def duration(text: str) -> timedelta:
    """Parse ``90m``, ``12h``, ``14d``, ``2w`` or ``30s``."""
    match = re.fullmatch(r"(\d{1,6})([smhdw])", text)
    if match is None:
        raise ArgumentTypeError(f"{text!r} is not a time: write a number and one of s, m, h, d, w, such as 14d")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


def count(text: str) -> int:
    """Parse a whole number from 1."""
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return int(text)


def names(text: str) -> list[str]:
    """Parse names with commas between them."""
    return [name.strip() for name in text.split(",") if name.strip()]


def storage_option(text: str) -> tuple[str, str]:
    """Parse ``KEY=VALUE``."""
    key, sign, value = text.partition("=")
    if not sign:
        raise ArgumentTypeError("KEY=VALUE")
    return key, value


TABLE = argument("table", "path or address of the table")
VERSION = argument("--version", "number of a version, or name of a tag; the newest if left out", type=reference)
BRANCH = argument("--branch", "branch; main if left out")
STORAGE_OPTION = argument(
    "--storage-option",
    "setting of the storage service; may be repeated",
    action="append",
    default=[],
    type=storage_option,
    metavar="KEY=VALUE",
)
JSON = argument("--json", "print JSON for programs", action="store_true")


def open_table(arguments: Namespace) -> LanceDataset:
    """Open the table at the version and branch that the arguments name."""
    return dataset(
        arguments.table,
        version=getattr(arguments, "version", None),
        branch=getattr(arguments, "branch", None),
        storage_options=dict(arguments.storage_option),
    )
