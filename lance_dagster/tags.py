"""Run tags: the version that a Dagster run made, by name.

``run-<first 8 of the run id>``; a run that commits a table more than once gets ``-v<version>`` on the later ones, so
that a tag never moves. Clean-up recognises these names and no others as its own to expire.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lance_core.errors import RefAlreadyExistsError

if TYPE_CHECKING:
    import lance_core

_RUN_TAG = re.compile(r"run-[0-9a-f]{8}(-v[0-9]+)?")
_SHORT = 8


def run_tag(run_id: str) -> str:
    """Name of a run's tag."""
    return f"run-{run_id[:_SHORT]}"


def is_run_tag(name: str) -> bool:
    """Whether the IO manager makes tags of this name."""
    return _RUN_TAG.fullmatch(name) is not None


def tag_version(dataset: lance_core.LanceDataset, *, run_id: str, version: int) -> str:
    """Tag a version with the run that made it.

    Returns:
        The tag that points to ``version`` now.
    """
    name = run_tag(run_id)
    try:
        dataset.tags.create(name, version)
    except RefAlreadyExistsError:
        if dataset.tags.get_version(name) == version:
            return name
    else:
        return name
    name = f"{name}-v{version}"
    try:
        dataset.tags.create(name, version)
    except RefAlreadyExistsError:
        # The name holds the version, so it can only point there.
        return name
    return name
