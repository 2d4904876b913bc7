"""Reports of Lance tables to Dagster from processes outside of it, through Dagster Pipes.

A job of ``spark-submit`` or Databricks needs ``dagster-pipes`` for this, and neither Dagster nor ``lance_dagster``.
Not in pylance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from lance_core.dataset import LanceDataset
from lance_core.dataset import dataset as open_dataset
from lance_core.errors import InvalidInputError, VersionNotFoundError

if TYPE_CHECKING:
    from collections.abc import Mapping

_RUN_ID = "dagster/run_id"
_LOOKBACK = 100


class PipesContext(Protocol):
    """The part of ``dagster_pipes.PipesContext`` that is used."""

    @property
    def run_id(self) -> str:
        """Id of the run."""
        ...

    @property
    def asset_keys(self) -> list[str]:
        """Keys of the assets that the step materializes, parts joined by ``/``."""
        ...

    def report_asset_materialization(
        self, metadata: Any = None, data_version: str | None = None, asset_key: str | None = None
    ) -> None:
        """Report that an asset was materialized."""
        ...


def commit_properties(context: PipesContext, *, asset_key: str | None = None) -> dict[str, str]:
    """Return transaction properties that name the run of Dagster that a commit is made for.

    Sensors of ``lance_dagster`` do not report such commits again, and `report_table` finds them. Pass them as
    ``transaction_properties`` to writes of lance_core; Spark's option of that name takes them as JSON.

    Args:
        context: From ``dagster_pipes.open_dagster_pipes()``.
        asset_key: Key of the asset, parts joined by ``/``; needed if the step has several.
    """
    return {_RUN_ID: context.run_id, "dagster/asset_key": _asset_key(context, asset_key)}


def report_table(
    context: PipesContext,
    dataset: LanceDataset | str,
    *,
    asset_key: str | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> int:
    """Report a version of a table to Dagster as the materialization of an asset.

    The data version of the asset becomes the version of the table (on a branch ``branch@version``), and the metadata
    tell its rows, columns, files and size, all from the manifest.

    Args:
        context: From ``dagster_pipes.open_dagster_pipes()``.
        dataset: The table at the version to report. For an address, the newest version with the `commit_properties`
            of this run and asset is reported; the newest of all if there is none among the last 100.
        asset_key: Key of the asset, parts joined by ``/``; needed if the step has several.
        metadata: Further metadata, as Dagster Pipes takes them; they take precedence.

    Returns:
        The version that was reported.

    Raises:
        DatasetNotFoundError: There is no table.

    Examples:
        >>> new = lance_core.write_dataset(pa.table({"id": [1, 2]}), "piped.lance")
        >>> class Context:  # that of dagster_pipes.open_dagster_pipes()
        ...     run_id, asset_keys = "4b0e", ["orders"]
        ...     def report_asset_materialization(self, metadata, data_version, asset_key):
        ...         print(asset_key, data_version, metadata["dagster/row_count"])
        >>> lance_core.pipes.report_table(Context(), new)
        orders 1 2
        1
    """
    key = _asset_key(context, asset_key)
    if isinstance(dataset, str):
        dataset = _made_by(open_dataset(dataset), commit_properties(context, asset_key=key))
    version = str(dataset.version) if dataset.branch is None else f"{dataset.branch}@{dataset.version}"
    context.report_asset_materialization(
        metadata={**_metadata(dataset, key), **(metadata or {})}, data_version=version, asset_key=key
    )
    return dataset.version


def _asset_key(context: PipesContext, given: str | None) -> str:
    if given is not None:
        return given
    keys = list(context.asset_keys)
    if len(keys) != 1:
        raise InvalidInputError(f"The step has the assets {keys}. Say which one by 'asset_key'.")
    return keys[0]


def _made_by(dataset: LanceDataset, wanted: Mapping[str, str]) -> LanceDataset:
    """Return the newest version that has some transaction properties, or else the newest of all."""
    for version in range(dataset.version, max(dataset.version - _LOOKBACK, 0), -1):
        try:
            transaction = dataset.read_transaction(version)
        except VersionNotFoundError:
            break
        properties = (None if transaction is None else transaction.transaction_properties) or {}
        if wanted.items() <= properties.items():
            return dataset.checkout_version(version)
    return dataset


def _metadata(dataset: LanceDataset, key: str) -> dict[str, Any]:
    numbers = dataset.table_statistics()
    columns = [
        {"name": column.name, "type": str(column.type), "constraints": {"nullable": column.nullable}}
        for column in dataset.schema
    ]
    branch = {} if dataset.branch is None else {"lance/branch": dataset.branch}
    return {
        "dagster/row_count": dataset.count_rows(),
        "dagster/column_schema": {"type": "table_schema", "raw_value": {"columns": columns}},
        "dagster/table_name": key.replace("/", "."),
        "dagster/uri": dataset.uri,
        "dagster/storage_kind": "lance",
        "lance/table_bytes": numbers["num_bytes"],
        "lance/fragments": numbers["num_fragments"],
        "lance/version": dataset.version,
        **branch,
    }
