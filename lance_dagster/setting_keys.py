"""Names of settings: unknown ``lance/`` keys are refused, near misses of bare keys warn.

A setting that nobody reads leaves the default in force, and the default mode replaces the table. So a misspelt name
is an error where the prefix says that it is meant for us, and a warning where it only looks like one of our names.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

import dagster as dg

import lance_core
from lance_core.errors import InvalidInputError
from lance_dagster import _compat
from lance_dagster.metadata import REPORTED_KEYS
from lance_dagster.partitioning.partitions import check_partition_expr
from lance_dagster.settings import (
    FAMILIAR,
    PREFIX,
    ReadMode,
    ReadSettings,
    SchemaMode,
    WriteMode,
    WriteSettings,
    plain_value,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    Check = Callable[[Mapping[str, Any]], list[str]]

WRITE_SETTINGS = frozenset(
    {
        "mode",
        "schema_mode",
        "merge_keys",
        "primary_key",
        "partition_expr",
        "branch",
        "out_of_partition",
        "compression_profile",
        "uri",
        "shared",
    }
)
READ_SETTINGS = frozenset({"columns", "filter", "version", "tag", "as_of", "branch", "read", "partition_expr"})
SENSOR_TAGS = frozenset({f"{PREFIX}table", f"{PREFIX}version"})
"""Run tags that `build_table_sensor` gives to the runs it requests."""

# Names that other writers have for our settings.
_SYNONYMS = {"write_mode": "mode", "save_mode": "mode"}
_FOREIGN_PREFIX = re.compile(r"lance\s*[/._:\-\s]\s*(?P<name>.+)", re.IGNORECASE)
_BEFORE = "_before"
_MAX_LENGTH_DIFFERENCE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsOwner:
    """A place where users put settings.

    Args:
        title: What a key is called here.
        settings: Settings that are read here, as ``lance/<name>``.
        bare: Those of them that are also read without the prefix.
        others: Further keys with the prefix that are fine here: those that lance_dagster writes itself.
        elsewhere: Where the other settings belong.
    """

    title: str
    settings: frozenset[str]
    bare: frozenset[str]
    others: frozenset[str]
    elsewhere: str


_INPUT_TITLE = "metadata of an input (dg.AssetIn)"
ASSET = SettingsOwner(
    title="asset metadata key",
    settings=WRITE_SETTINGS | {"indices"},
    bare=WRITE_SETTINGS & FAMILIAR,
    others=REPORTED_KEYS,
    elsewhere=f"It is a setting for the {_INPUT_TITLE}.",
)
OUTPUT = replace(ASSET, title="output metadata key")
INPUT = SettingsOwner(
    title="input metadata key",
    settings=READ_SETTINGS,
    bare=READ_SETTINGS,
    others=frozenset(),
    elsewhere="It is a setting for the metadata of the asset that writes the table.",
)
RUN_TAGS = SettingsOwner(
    title="run tag",
    settings=WRITE_SETTINGS,
    bare=frozenset(),
    others=SENSOR_TAGS,
    elsewhere=f"It is a setting for the {_INPUT_TITLE}.",
)


def check_keys(owner: SettingsOwner, given: Mapping[str, Any]) -> list[str]:
    """Refuse keys that are meant for lance_dagster and that it does not know.

    Args:
        owner: Where the keys were given.
        given: Metadata or tags; keys without a prefix and those of other tools are fine.

    Returns:
        Warnings: keys that look like a misspelt setting.

    Raises:
        InvalidInputError: An unknown ``lance/`` key.
    """
    problems: list[str] = []
    for key, value in given.items():
        if key.startswith(PREFIX):
            _check_prefixed(owner, key)
        elif (meant := _meant(owner, key, plain_value(value))) is not None:
            problems.append(f"The {owner.title} {key!r} has no effect. Did you mean {meant!r}?")
    return problems


def check_asset(definition: dg.AssetsDefinition | dg.AssetSpec) -> None:
    """Check the metadata and tags of an asset's definition, and the metadata of its inputs; near misses warn.

    Args:
        definition: An asset that is stored as a Lance table.

    Raises:
        InvalidInputError: An unknown ``lance/`` key.
    """
    for what, check, given in _given_to(definition):
        warn_of(what, check, given)
    if isinstance(definition, dg.AssetsDefinition):
        _check_values(definition)


def _check_values(definition: dg.AssetsDefinition) -> None:
    """Refuse values that no run could use; what a run may still give (tags, output metadata) is not missed."""
    for key, metadata in definition.metadata_by_key.items():
        partitions = definition.specs_by_key[key].partitions_def

        def check(given: Mapping[str, Any], partitions: dg.PartitionsDefinition | None = partitions) -> list[str]:
            default = WriteSettings()
            settings = WriteSettings.of(given, default=default, is_partitioned=partitions is not None)
            if partitions is not None and settings.partition_expr is not None:
                check_partition_expr(partitions, settings.partition_expr)
            return []

        warn_of(f"Asset {key.to_user_string()}", check, metadata)
        for name, given in _compat.input_metadata(definition).items():
            warn_of(f"Input {name} of asset {key.to_user_string()}", _check_read, given)


def _check_read(given: Mapping[str, Any]) -> list[str]:
    ReadSettings.of(given, default=ReadSettings())
    return []


def check_run_tag_values(tags: Mapping[str, str]) -> None:
    """Refuse values of run tags that no asset could use.

    Raises:
        InvalidInputError: Such a value.
    """
    given = {key: value for key, value in tags.items() if key.startswith(PREFIX)}
    WriteSettings.of(given, default=WriteSettings(), is_partitioned=True)


def warn_of(what: str, check: Check, given: Mapping[str, Any]) -> None:
    """Check keys where definitions are built; near misses warn.

    Args:
        what: Begins every message.
        check: One of this module.
        given: Metadata or tags.

    Raises:
        InvalidInputError: An unknown ``lance/`` key.
    """
    try:
        messages = check(given)
    except InvalidInputError as error:
        error.message = f"{what}: {error.message}"
        raise
    for message in messages:
        warnings.warn(f"{what}: {message}", UserWarning, stacklevel=3)


def check_metadata(metadata: Mapping[str, Any]) -> list[str]:
    """Check the metadata of an asset's definition; as `check_keys`."""
    return check_keys(ASSET, metadata)


def check_run_tags(tags: Mapping[str, str]) -> list[str]:
    """Check the tags of a run; as `check_keys`."""
    return check_keys(RUN_TAGS, tags)


def check_output(context: dg.OutputContext) -> list[str]:
    """Check all places that can hold settings of a write; as `check_keys`."""
    spec = _compat.asset_spec(context)
    return [
        *check_run_tags(_compat.run_tags(context)),
        *_check_asset_tags({} if spec is None else spec.tags),
        *check_metadata(context.definition_metadata or {}),
        *check_keys(OUTPUT, context.output_metadata or {}),
    ]


def check_input(context: dg.InputContext, upstream: Mapping[str, Any]) -> list[str]:
    """Check all places that can hold settings of a load; as `check_keys`.

    Args:
        context: Of the input.
        upstream: Metadata of the loaded asset's definition.
    """
    return [
        *check_run_tags(_compat.run_tags(context)),
        *check_metadata(upstream),
        *check_keys(INPUT, context.definition_metadata or {}),
    ]


def _given_to(
    definition: dg.AssetsDefinition | dg.AssetSpec,
) -> Iterator[tuple[str, Check, Mapping[str, Any]]]:
    """Yield all places of a definition that can hold settings: what each is, its check, and what is there."""
    specs = [definition] if isinstance(definition, dg.AssetSpec) else list(definition.specs)
    for spec in specs:
        name = f"Asset {spec.key.to_user_string()}"
        yield name, check_metadata, spec.metadata
        yield name, _check_asset_tags, spec.tags
    if isinstance(definition, dg.AssetsDefinition) and definition.is_executable:
        written = ", ".join(sorted(spec.key.to_user_string() for spec in specs))
        for name, metadata in _compat.input_metadata(definition).items():
            yield f"Input {name} of asset {written}", partial(check_keys, INPUT), metadata


def _check_asset_tags(tags: Mapping[str, str]) -> list[str]:
    """Refuse settings among an asset's tags, which are labels: nothing reads them."""
    for key in tags:
        name = _closest(key.removeprefix(PREFIX), WRITE_SETTINGS, cutoff=0.75) if key.startswith(PREFIX) else None
        if name is not None:
            raise InvalidInputError(
                f"The asset tag {key!r} has no effect: tags of an asset are labels. Set {PREFIX + name!r} in the "
                "asset's metadata, or as a tag of the run."
            )
    return []


def _check_prefixed(owner: SettingsOwner, key: str) -> None:
    name = key.removeprefix(PREFIX)
    if name in owner.settings or key in owner.others or key.removesuffix(_BEFORE) in owner.others:
        return
    if name in WRITE_SETTINGS | READ_SETTINGS:
        raise InvalidInputError(f"The {owner.title} {key!r} has no effect. {owner.elsewhere}")
    close = _closest(name, owner.settings, cutoff=0.6)
    hint = "" if close is None else f" Did you mean {PREFIX + close!r}?"
    names = ", ".join(f"'{PREFIX}{setting}'" for setting in sorted(owner.settings))
    raise InvalidInputError(f"Unknown {owner.title} {key!r}.{hint} The prefix {PREFIX!r} is for: {names}.")


def _meant(owner: SettingsOwner, key: str, value: Any) -> str | None:
    """Return the key that a user probably meant, or None."""
    match = _FOREIGN_PREFIX.fullmatch(key.strip())
    if match is not None:
        name = _closest(_normal(match["name"]), owner.settings, cutoff=0.75)
        return None if name is None else PREFIX + name
    if key in owner.bare:
        return None
    # Run tags and settings that need their prefix: only a value that is a choice of ours tells that they are meant.
    candidates = owner.bare or frozenset(name for name in owner.settings if name in _CHOICES)
    candidates |= {"out_of_partition"} & owner.settings
    name = _SYNONYMS.get(_normal(key)) or _closest(_normal(key), candidates, cutoff=0.75)
    if name is None or name not in candidates or not _PLAUSIBLE.get(name, _is_text)(value):
        return None
    return name if name in owner.bare else PREFIX + name


def _closest(name: str, candidates: Iterable[str], *, cutoff: float) -> str | None:
    """The candidate that a name is a misspelling of: typing errors spare the first letter and most of the length."""
    name = name.lower()
    alike = [
        candidate
        for candidate in candidates
        if candidate[:1] == name[:1] and abs(len(candidate) - len(name)) <= _MAX_LENGTH_DIFFERENCE
    ]
    return next(iter(get_close_matches(name, alike, n=1, cutoff=cutoff)), None)


def _normal(key: str) -> str:
    return re.sub(r"[\s.\-]+", "_", key.strip()).lower()


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_names(value: Any) -> bool:
    return isinstance(value, str) or (
        isinstance(value, Sequence) and not isinstance(value, bytes) and all(isinstance(item, str) for item in value)
    )


def _one_of(choices: Callable[[], tuple[Any, ...]]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and value.lower() in choices()


_CHOICES = {
    "mode": lambda: get_args(WriteMode),
    "schema_mode": lambda: get_args(SchemaMode),
    "out_of_partition": lambda: ("error", "drop", "allow"),
    "compression_profile": lambda: get_args(lance_core.CompressionProfile),
    "read": lambda: get_args(ReadMode),
}
# A key such as "model" or "tags" is a near miss only if its value would be one of the setting.
_PLAUSIBLE: dict[str, Callable[[Any], bool]] = {
    **{name: _one_of(choices) for name, choices in _CHOICES.items()},
    "merge_keys": _is_names,
    "primary_key": _is_names,
    "columns": _is_names,
    "partition_expr": lambda value: isinstance(value, (str, Mapping)),
    "version": lambda value: isinstance(value, int) or (isinstance(value, str) and value.isdecimal()),
    "as_of": lambda value: value is not None,
}
