"""Run tags: the version that a Dagster run made, by name.

``run-<first 8 of the run id>`` unless another template is given; a run that commits a table more than once gets
``-v<version>`` on the later ones, so that a tag never moves. Clean-up recognises these names and no others as its own
to expire: a tag of another template is kept until somebody deletes it.
"""

from __future__ import annotations

import re
from string import Formatter
from typing import TYPE_CHECKING

from lance_core.errors import InvalidInputError, RefAlreadyExistsError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import lance_core

DEFAULT_TEMPLATE = "run-{short_run_id}"
TEMPLATE_FIELDS = ("run_id", "short_run_id", "asset", "partition")
_RUN_FIELDS = {"run_id", "short_run_id"}
_RUN_TAG = re.compile(r"run-[0-9a-f]{8}(-v[0-9]+)?")
_SHORT = 8
_MAX = 100


def run_tag(run_id: str) -> str:
    """Name of a run's tag by the default template."""
    return f"run-{run_id[:_SHORT]}"


def is_run_tag(name: str) -> bool:
    """Return whether the IO manager makes tags of this name by default."""
    return _RUN_TAG.fullmatch(name) is not None


def tag_name(template: str, *, run_id: str, asset: str, partitions: Sequence[str]) -> str:
    """Return the tag that a template asks for, made of what a tag may consist of.

    Args:
        template: Text with ``{run_id}``, ``{short_run_id}``, ``{asset}`` or ``{partition}``.
        run_id: The run.
        asset: Parts of the asset key, joined by ``/``.
        partitions: Sorted partition keys; several are told by the first and the last.

    Raises:
        InvalidInputError: A template that asks for something else, or makes no name.
    """
    _check(template)
    partition = "-to-".join(dict.fromkeys((*partitions[:1], *partitions[-1:])))
    text = template.format(run_id=run_id, short_run_id=run_id[:_SHORT], asset=asset, partition=partition)
    # What no tag may contain, at the start, in a row, or at the end.
    name = re.sub(r"\.{2,}", ".", re.sub(r"[^A-Za-z0-9._-]+", "-", text)).strip(".-")
    name = name.removesuffix(".lock")[:_MAX].rstrip(".")
    if not name:
        raise InvalidInputError(f"The tag template {template!r} gives an empty name.")
    return name


def _check(template: str) -> None:
    try:
        fields = {name for _, name, _, _ in Formatter().parse(template) if name is not None}
    except ValueError as error:
        raise InvalidInputError(f"The tag template {template!r} cannot be read: {error}") from error
    unknown = sorted(fields - set(TEMPLATE_FIELDS))
    if unknown:
        allowed = ", ".join(f"{{{name}}}" for name in TEMPLATE_FIELDS)
        raise InvalidInputError(
            f"The tag template {template!r} uses unknown fields {unknown}; the fields are: {allowed}."
        )


def check_free(dataset: lance_core.LanceDataset, template: str, name: str) -> None:
    """Refuse a name that an earlier run has taken, before anything is written; names with a run id are new.

    Raises:
        RefAlreadyExistsError: There is such a tag.
    """
    if any(f"{{{field}}}" in template for field in _RUN_FIELDS) or name not in dataset.tags.list():
        return
    msg = f"The tag {name!r} exists already: delete it, or use {{short_run_id}} in the template. Nothing was written."
    raise RefAlreadyExistsError(msg, path=dataset.uri)


def tag_version(dataset: lance_core.LanceDataset, name: str) -> str:
    """Tag the version of a dataset object.

    Returns:
        The tag that points to it now.
    """
    try:
        dataset.tags.create(name, dataset.version)
    except RefAlreadyExistsError:
        listed = dataset.tags.list().get(name, {})
        if (listed.get("version"), listed.get("branch")) == (dataset.version, dataset.branch):
            return name
    else:
        return name
    name = f"{name}-v{dataset.version}"
    try:
        dataset.tags.create(name, dataset.version)
    except RefAlreadyExistsError:
        # The name holds the version, so it can only point there.
        return name
    return name
