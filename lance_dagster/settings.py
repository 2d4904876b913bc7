"""Settings that users put into metadata and run tags, in order of precedence, with their checks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, get_args

import lance_core
from lance_core.common.hints import did_you_mean
from lance_core.errors import InvalidInputError
from lance_dagster.handlers.base import OutOfPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

WriteMode = Literal["overwrite", "append", "merge", "replace_partitions", "error", "ignore"]
SchemaMode = Literal["auto", "strict", "add", "overwrite"]
ReadMode = Literal["latest", "materialized"]

# Names that other IO managers' users know; every other setting needs its prefix, so that metadata which happens to be
# called the same changes nothing.
FAMILIAR = frozenset(
    {
        "mode",
        "schema_mode",
        "merge_keys",
        "primary_key",
        "partition_expr",
        "columns",
        "filter",
        "version",
        "tag",
        "branch",
        "as_of",
        "read",
    }
)
PREFIX = "lance/"
BRANCH = f"{PREFIX}branch"
"""Run tag: the branch that a run works on."""
MAIN = "main"
"""Name of the main branch, where a branch may be named."""


def find_setting(name: str, *sources: Mapping[str, Any]) -> Any:
    """First value of ``lance/<name>`` (a familiar name also without the prefix) in some metadata, or None."""
    keys = (f"{PREFIX}{name}", name) if name in FAMILIAR else (f"{PREFIX}{name}",)
    for source in sources:
        for key in keys:
            if source.get(key) is not None:
                return plain_value(source[key])
    return None


def own_branch(metadata: Mapping[str, Any], default: str | None) -> str | None:
    """Return the branch that an asset is stored on, by its definition or its IO manager; None for the main branch.

    An output on any other branch is a trial: Dagster's asset is not materialized by it.
    """
    branch = find_setting("branch", metadata) or default
    return None if not branch or branch == MAIN else str(branch)


def plain_value(value: Any) -> Any:
    """Return the value of a metadata entry; Dagster wraps those that are given in a run."""
    return value.value if hasattr(value, "value") else value


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteSettings:
    """Settings for storing one output.

    Args:
        mode: Write mode.
        schema_mode: What happens to columns that differ from the table's. ``auto``: strict where rows of the table are
            kept, the frame's own columns where all of it is replaced.
        out_of_partition: What happens to rows outside of the run's partitions.
        partition_expr: As the user gave it.
        merge_keys: Columns that tell rows apart in mode ``merge``; None for the primary key that the table declares.
        branch: Branch to write to; None for the main branch.
        compression_profile: Profile of a table that is created or overwritten; None for the one it has.
    """

    mode: WriteMode = "overwrite"
    schema_mode: SchemaMode = "auto"
    out_of_partition: OutOfPartition = "error"
    partition_expr: Any = None
    merge_keys: tuple[str, ...] | None = None
    branch: str | None = None
    compression_profile: lance_core.CompressionProfile | None = None

    @classmethod
    def of(cls, *sources: Mapping[str, Any], default: WriteSettings, is_partitioned: bool) -> WriteSettings:
        """Settings from metadata and tags (the first source wins) over the IO manager's own.

        Raises:
            InvalidInputError: A setting that does not exist.
        """

        def setting(name: str, otherwise: Any) -> Any:
            value = find_setting(name, *sources)
            return otherwise if value is None else value

        mode = check_choice("mode", setting("mode", default.mode), get_args(WriteMode))
        if mode == "replace_partitions" and not is_partitioned:
            raise InvalidInputError(
                "The mode 'replace_partitions' needs a partitioned asset, and this asset has no partitions."
            )
        keys = setting("merge_keys", setting("primary_key", default.merge_keys))
        branch = setting("branch", default.branch)
        profile = setting("compression_profile", default.compression_profile)
        return cls(
            mode="replace_partitions" if is_partitioned and mode == "overwrite" else mode,
            schema_mode=check_choice("schema_mode", setting("schema_mode", default.schema_mode), get_args(SchemaMode)),
            out_of_partition=check_choice(
                "out_of_partition", setting("out_of_partition", default.out_of_partition), get_args(OutOfPartition)
            ),
            partition_expr=find_setting("partition_expr", *sources),
            merge_keys=_names("merge_keys", keys),
            branch=str(branch) if branch else None,
            compression_profile=(
                None
                if profile is None
                else check_choice("compression_profile", profile, get_args(lance_core.CompressionProfile))
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSettings:
    """Settings for loading one input.

    Args:
        columns: Columns in order, or None for all.
        filter: SQL predicate, or None.
        version: Version number or tag, or None for the newest.
        branch: Branch, or None for the main branch.
        as_of: The newest version before this point in time.
        read: ``materialized``: the version that Dagster recorded for the upstream.
    """

    columns: tuple[str, ...] | None = None
    filter: str | None = None
    version: int | str | None = None
    branch: str | None = None
    as_of: datetime | str | None = None
    read: ReadMode = "latest"

    @classmethod
    def of(cls, metadata: Mapping[str, Any], *, default: ReadSettings) -> ReadSettings:
        """Settings from the metadata of an ``AssetIn`` over the IO manager's own.

        Raises:
            InvalidInputError: Settings that do not exist or contradict each other.
        """
        names = ("version", "tag", "as_of", "branch")
        given = {name: find_setting(name, metadata) for name in names}
        chosen = [name for name in names[:3] if given[name] is not None]
        if len(chosen) > 1:
            msg = f"Give an input one of 'version', 'tag' and 'as_of', not {' and '.join(map(repr, chosen))}."
            raise InvalidInputError(msg)
        if given["tag"] is not None and given["branch"] is not None:
            raise InvalidInputError("Specify either 'tag' or 'branch' for an input, not both.")
        read = find_setting("read", metadata)
        if read == "materialized" and (chosen or given["branch"] is not None):
            raise InvalidInputError("'read': 'materialized' chooses the version. Specify no other one.")
        if read is None:
            read = "latest" if chosen or given["branch"] is not None else default.read
        filter_, branch = find_setting("filter", metadata), given["branch"]
        return cls(
            columns=_names("columns", find_setting("columns", metadata), is_comma_text=False),
            filter=None if filter_ is None else str(filter_),
            version=str(given["tag"]) if given["tag"] is not None else _version(given["version"]),
            branch=None if branch is None else str(branch),
            as_of=_moment(given["as_of"]),
            read=check_choice("read", read, get_args(ReadMode)),
        )


def _names(name: str, value: Any, *, is_comma_text: bool = True) -> tuple[str, ...] | None:
    """Column names; a text (the only thing that a tag can hold) is one name, or names with commas between them."""
    if value is None:
        return None
    if isinstance(value, str) and is_comma_text:
        value = [part.strip() for part in value.split(",")]
    if isinstance(value, str) or not isinstance(value, Sequence) or not value:
        msg = f"The metadata {name!r} is a list of names; found {value!r}."
        raise InvalidInputError(msg)
    names = tuple(str(item) for item in value)
    if "" in names or len(set(names)) < len(names):
        msg = f"The metadata {name!r} names a column twice, or an empty one: {list(names)}. Name each column once."
        raise InvalidInputError(msg)
    return names


def _version(version: Any) -> int | None:
    if version is None:
        return None
    try:
        return int(version)
    except (TypeError, ValueError) as error:
        msg = f"The input metadata 'version' is a version number (a tag goes under 'tag'); found {version!r}."
        raise InvalidInputError(msg) from error


def _moment(value: Any) -> datetime | str | None:
    # Dagster's timestamps in metadata are seconds since 1970.
    return datetime.fromtimestamp(value, UTC) if isinstance(value, (int, float)) else value


def check_choice(name: str, value: Any, allowed: tuple[Any, ...]) -> Any:
    """Return a value that is one of some.

    Raises:
        InvalidInputError: It is none of them.
    """
    if value not in allowed:
        msg = f"{name} is one of {', '.join(map(repr, allowed))}; found {value!r}.{did_you_mean(value, allowed)}"
        raise InvalidInputError(msg)
    return value
