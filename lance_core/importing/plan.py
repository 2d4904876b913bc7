"""Plans an import: which partitions have changed, and which are committed together."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from lance_core.common.frozen import frozen
from lance_core.importing.source import any_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow.compute as pc

    from lance_core.importing.source import Partition, Source

_MAX_PARTITIONS = 100
"""Partitions of a commit: each adds a term to the condition of the rows that it replaces."""


@frozen(kw_only=True)
class Step:
    """A commit of an import.

    Attributes:
        key: Identity of the step: the same whenever the same import is planned.
        names: Partitions to read; without any, rows are only deleted.
        condition: Rows of the Lance table that they replace; None for all rows.
        num_bytes: Size of the files to read.
    """

    key: str
    names: tuple[str, ...]
    condition: pc.Expression | None
    num_bytes: int


def make_plan(source: Source, *, earlier: Sequence[str], is_new: bool, commit_bytes: int) -> list[Step]:
    """Return the commits that make a Lance table equal to a source.

    Args:
        source: The source.
        earlier: Versions of the source that rows of the Lance table come from.
        is_new: The Lance table has no rows of a complete import.
        commit_bytes: Bytes of files of a commit, roughly.
    """
    partitions = source.partitions()
    states: list[Mapping[str, Partition]] = [{}] if is_new else []
    for version in earlier:
        other = source.at(version)
        if other is None or other.partitioned_by != source.partitioned_by:
            return [_step(source, partitions, None)]
        states.append(other.partitions())
    changed = {
        name: partition
        for name, partition in partitions.items()
        if any(name not in state or state[name].files != partition.files for state in states)
    }
    commits = [_step(source, group, any_of(list(group.values()))) for group in _groups(changed, commit_bytes)]
    removed = {name: partition for state in states for name, partition in state.items() if name not in partitions}
    if removed:
        commits.append(_step(source, {}, any_of(list(removed.values()))))
    return commits


def _step(source: Source, partitions: Mapping[str, Partition], condition: pc.Expression | None) -> Step:
    identity = "\n".join([source.address, source.version, *partitions])
    return Step(
        key=hashlib.sha256(identity.encode()).hexdigest()[:32],
        names=tuple(partitions),
        condition=condition,
        num_bytes=sum(partition.num_bytes for partition in partitions.values()),
    )


def _groups(partitions: Mapping[str, Partition], commit_bytes: int) -> Iterator[dict[str, Partition]]:
    """Divide partitions into groups of about so many bytes."""
    group: dict[str, Partition] = {}
    for name, partition in partitions.items():
        group[name] = partition
        if len(group) == _MAX_PARTITIONS or _size(group.values()) >= commit_bytes:
            yield group
            group = {}
    if group:
        yield group


def _size(partitions: Iterable[Partition]) -> int:
    return sum(partition.num_bytes for partition in partitions)
