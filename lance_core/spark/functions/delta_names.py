"""Names of Delta's ``DeltaTable`` and its builders that Lance tables refuse, with what to do instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from lance_core.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_CREATE = "use SQL, write_lance or df.write"
_PROTOCOL = "tables have no protocol of their own; rewrite them to change data_storage_version"

REFUSED: Mapping[str, str] = {
    **dict.fromkeys(["create", "createIfNotExists", "replace", "createOrReplace", "columnBuilder"], _CREATE),
    **dict.fromkeys(["upgradeTableProtocol", "addFeatureSupport", "dropFeatureSupport"], _PROTOCOL),
    **dict.fromkeys(["clone", "cloneAtVersion", "cloneAtTimestamp"], "use LanceDataset.shallow_clone"),
    "convertToDelta": "write the rows of the files with write_lance",
    "generate": "there are no manifests for other engines",
    "isDeltaTable": "forPath raises DatasetNotFoundError if there is no table",
    "where": "compaction chooses fragments by their sizes and deleted rows",
    "executeZOrderBy": "rows are not clustered; write them sorted, and create an index",
    "withSchemaEvolution": "add the columns before, with add_columns_lance",
}
"""Reasons by name."""


def refused(name: str) -> Callable[..., NoReturn]:
    """Placeholder for a method that Delta has."""
    reason = REFUSED[name]

    def refuse(*_arguments: Any, **_options: Any) -> NoReturn:
        raise UnsupportedError(f"{name} is not supported for Lance tables: {reason}")

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = f"Not supported: {reason}."
    return refuse
