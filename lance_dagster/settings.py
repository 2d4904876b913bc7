"""Settings that users put into metadata, in order of precedence, with their checks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from lance_core.errors import InvalidInputError, UnsupportedError
from lance_dagster.handlers.base import OutOfPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

WriteMode = Literal["overwrite", "append", "error", "ignore", "merge"]


# Names that other IO managers' users know; every other setting needs its prefix, so that metadata which happens to be
# called the same changes nothing.
_FAMILIAR = frozenset({"mode", "partition_expr", "columns", "filter", "version", "tag"})


def find_setting(name: str, *sources: Mapping[str, Any]) -> Any:
    """First value of ``lance/<name>`` (a familiar name also without the prefix) in some metadata, or None."""
    keys = (f"lance/{name}", name) if name in _FAMILIAR else (f"lance/{name}",)
    for source in sources:
        for key in keys:
            if source.get(key) is not None:
                value = source[key]
                # Metadata given in the run is wrapped by Dagster.
                return value.value if hasattr(value, "value") else value
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteSettings:
    """How one output is stored.

    Args:
        mode: Write mode.
        out_of_partition: What happens to rows outside of the run's partitions.
        partition_expr: As the user gave it.
    """

    mode: WriteMode
    out_of_partition: OutOfPartition
    partition_expr: Any

    @classmethod
    def of(cls, *sources: Mapping[str, Any], mode: WriteMode, out_of_partition: OutOfPartition) -> WriteSettings:
        """Settings from metadata (the first source wins) over the IO manager's own."""
        mode = _choice("mode", find_setting("mode", *sources) or mode, get_args(WriteMode))
        if mode == "merge":
            raise UnsupportedError(
                "mode 'merge' (update by key); use 'overwrite' with partitions, or LanceResource in the asset"
            )
        other = find_setting("out_of_partition", *sources) or out_of_partition
        return cls(
            mode=mode,
            out_of_partition=_choice("out_of_partition", other, get_args(OutOfPartition)),
            partition_expr=find_setting("partition_expr", *sources),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSettings:
    """How one input is loaded.

    Args:
        columns: Columns in order, or None for all.
        filter: SQL predicate, or None.
        version: Version number or tag, or None for the newest.
    """

    columns: tuple[str, ...] | None
    filter: str | None
    version: int | str | None

    @classmethod
    def of(cls, metadata: Mapping[str, Any]) -> ReadSettings:
        """Settings from the metadata of an ``AssetIn``."""
        columns = find_setting("columns", metadata)
        version, tag = find_setting("version", metadata), find_setting("tag", metadata)
        if version is not None and tag is not None:
            raise InvalidInputError("Give an input either a 'version' or a 'tag', not both.")
        if isinstance(columns, str) or not (columns is None or isinstance(columns, Sequence)):
            msg = f"The input metadata 'columns' is a list of names; found {columns!r}."
            raise InvalidInputError(msg)
        filter_ = find_setting("filter", metadata)
        return cls(
            columns=None if columns is None else tuple(str(name) for name in columns),
            filter=None if filter_ is None else str(filter_),
            version=str(tag) if tag is not None else _version(version),
        )


def _version(version: Any) -> int | None:
    if version is None:
        return None
    try:
        return int(version)
    except (TypeError, ValueError) as error:
        msg = f"The input metadata 'version' is a version number (a tag goes under 'tag'); found {version!r}."
        raise InvalidInputError(msg) from error


def _choice(name: str, value: Any, allowed: tuple[Any, ...]) -> Any:
    if value not in allowed:
        msg = f"{name} is one of {', '.join(map(repr, allowed))}; found {value!r}."
        raise InvalidInputError(msg)
    return value
