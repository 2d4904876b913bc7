"""Defaults and checks of arguments that several public functions share."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from numbers import Integral
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from lance_core.errors import InvalidInputError
from lance_core.format.file.file_version import check_writable, resolve_version

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt
    import pyarrow as pa

    from lance_core.change.stage import FileLimits
    from lance_core.table.refs import Reference
    from lance_core.table.snapshot import Snapshot

_Entry = TypeVar("_Entry", bound="Mapping[str, Any]")

DEFAULT_MAX_ROWS_PER_FILE = 1024 * 1024
DEFAULT_MAX_ROWS_PER_GROUP = 1024
DEFAULT_MAX_BYTES_PER_FILE = 90 * 1024**3

WRITE_MODES = ("create", "append", "overwrite")


def check_window(limit: int | None, offset: int | None, batch_size: int | None) -> None:
    """Refuse what is no number of rows."""
    for name, value, least in (("limit", limit, 0), ("offset", offset, 0), ("batch_size", batch_size, 1)):
        if value is not None and not isinstance(value, Integral):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInputError(f"'{name}' must be a whole number, not {value!r}")
        if value is not None and value < least:
            raise InvalidInputError(f"'{name}' must be at least {least}, not {value}")


def row_numbers(rows: Sequence[int] | pa.Array, name: str) -> npt.NDArray[np.int64] | npt.NDArray[np.uint64]:
    """Numbers of rows that a caller gives, shape (n,).

    Raises:
        InvalidInputError: Something else than whole numbers.
    """
    try:
        numbers = np.asarray(rows) if len(rows) else np.empty(0, np.int64)
    except TypeError as error:
        raise InvalidInputError(f"'{name}' must be a list of whole numbers, not {rows!r}") from error
    if numbers.dtype.kind not in "iu" or numbers.ndim != 1:
        raise InvalidInputError(f"'{name}' must be a list of whole numbers, not of {numbers.dtype}")
    return numbers


def names_of(columns: str | Iterable[str], name: str) -> tuple[str, ...]:
    """Names of columns that a caller gives: one, or several.

    Raises:
        InvalidInputError: Something else than names.
    """
    names = (columns,) if isinstance(columns, str) else tuple(columns) if isinstance(columns, Iterable) else (None,)  # pyright: ignore[reportUnnecessaryIsInstance]
    if not all(isinstance(item, str) for item in names):
        raise InvalidInputError(f"'{name}' must be a name or a list of names, not {columns!r}")
    return tuple(map(str, names))


def ordered(named: Mapping[str, _Entry], key: str, order: str | None) -> list[tuple[str, _Entry]]:
    """Return names and entries by a key of the entries, ``asc`` or ``desc`` (which None means), then by name.

    Raises:
        InvalidInputError: Another order.
    """
    if order not in {None, "asc", "desc"}:
        raise InvalidInputError(f"'order' must be 'asc' or 'desc', not {order!r}")
    return sorted(sorted(named.items()), key=lambda entry: entry[1][key], reverse=order != "asc")


def branch_reference(branch: str | None, version: Reference) -> Reference:
    """Branch and version as one reference.

    Raises:
        InvalidInputError: Both name a branch.
    """
    if branch is None:
        return version
    if version is not None and (not isinstance(version, int) or isinstance(version, bool)):
        raise InvalidInputError(f"'version' must be a number when 'branch' is given, not {version!r}")
    return (branch, version)


def point_in_time(time: datetime | str) -> datetime:
    """Return a point in time; local time if there is no time zone.

    Raises:
        InvalidInputError: Something else.
    """
    try:
        parsed = datetime.fromisoformat(time) if isinstance(time, str) else time
        return parsed.astimezone(UTC)
    except (AttributeError, ValueError, OverflowError, OSError) as error:
        raise InvalidInputError(
            f"{time!r} is not a point in time. Pass a datetime or text such as '2026-01-31 12:00:00'"
        ) from error


def auto_cleanup_settings(options: Mapping[str, int] | None, argument: str = "auto_cleanup_options") -> dict[str, str]:
    """Settings of a new table by which pylance cleans up after some of its commits.

    Args:
        options: ``interval`` (commits, 20 if missing) and ``older_than_seconds`` (14 days if missing); None for no
            settings.
        argument: Name of the argument, for the error.

    Raises:
        InvalidInputError: Other names, or not positive numbers.
    """
    if options is None:
        return {}
    unknown = set(options) - {"interval", "older_than_seconds"}
    interval, seconds = options.get("interval", 20), options.get("older_than_seconds", 14 * 86400)
    if unknown or interval < 1 or seconds < 0:
        raise InvalidInputError(f"{argument} takes 'interval' and 'older_than_seconds', not {dict(options)!r}")
    return {"lance.auto_cleanup.interval": str(interval), "lance.auto_cleanup.older_than": f"{seconds}s"}


def seconds_of(timeout: timedelta | None) -> float:
    """Seconds of a time limit; None is no limit.

    Raises:
        InvalidInputError: Not a positive duration.
    """
    if timeout is None:
        return float("inf")
    if not isinstance(timeout, timedelta) or timeout <= timedelta(0):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInputError(f"a timeout must be a positive timedelta or None, not {timeout!r}")
    return timeout.total_seconds()


def check_mode(mode: str) -> None:
    """Refuse unknown modes of writing."""
    if mode not in WRITE_MODES:
        raise InvalidInputError(f"'mode' must be one of {', '.join(WRITE_MODES)}, not {mode!r}; nothing was written")


def file_limits(
    max_rows_per_file: int,
    max_bytes_per_file: int,
    max_page_bytes: int | None = None,
    *,
    max_rows_per_group: int | None = None,
) -> FileLimits:
    """Check when a data file is full, a page of it, and a row group of a file of version 0.1."""
    from lance_core.change.stage import FileLimits  # noqa: PLC0415 whoever reads stages no files
    from lance_core.file.write.field_writer import RowGroups  # noqa: PLC0415 whoever writes no file needs no encoder

    if max_page_bytes is not None:
        from lance_core.file.write.writer import PAGE_BYTES  # noqa: PLC0415 likewise

        if max_page_bytes < 1:
            raise InvalidInputError(f"max_page_bytes must be at least 1, not {max_page_bytes}; nothing was written")
        max_page_bytes = min(max_page_bytes, PAGE_BYTES)
    group_rows = DEFAULT_MAX_ROWS_PER_GROUP if max_rows_per_group is None else max_rows_per_group
    if min(max_rows_per_file, max_bytes_per_file, group_rows) < 1:
        raise InvalidInputError(
            "max_rows_per_file, max_bytes_per_file and max_rows_per_group must be at least 1; nothing was written"
        )
    return FileLimits(
        max_rows_per_file=max_rows_per_file,
        max_bytes_per_file=max_bytes_per_file,
        page_bytes=max_page_bytes,
        groups=RowGroups(max_rows=group_rows),
    )


def file_version(asked: str | None, existing: Snapshot | None) -> str:
    """Return the file version to write: the one asked for, else that of the dataset, else the default.

    Raises:
        UnsupportedError: A version that lance_core does not write.
    """
    if asked is None and existing is not None:
        asked = existing.manifest.new_file_version
    chosen = resolve_version(asked)
    check_writable(chosen)
    return chosen.name
