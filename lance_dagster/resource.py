"""Direct access to tables from assets, checks and jobs."""

from __future__ import annotations

from copy import copy
from datetime import UTC, timedelta
from typing import TYPE_CHECKING, Any, Unpack

import dagster as dg
from pydantic import Field, PrivateAttr

import lance_core
from lance_core.common.signatures import check_options, with_options
from lance_core.errors import DatasetNotFoundError
from lance_dagster.metadata import storage_metadata, table_numbers
from lance_dagster.settings import own_branch
from lance_dagster.storage import Storage
from lance_dagster.versions.publish import PUBLISHED, publish

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from datetime import datetime

    import pyarrow as pa

    from lance_core.optimize import CompactionArguments
    from lance_core.write import WriteArguments

_NO_TIME = timedelta(0)


class LanceResource(Storage, dg.ConfigurableResource):
    """The tables below ``root``, named like the IO manager names them.

    Example:
        ``lance.dataset(dg.AssetKey(["silver", "users"])).count_rows()``

    Examples:
        >>> lance = lance_dagster.LanceResource(root=".")
        >>> lance.dataset("cities").count_rows()
        4
    """

    branch: str | None = Field(
        default=None,
        description="Branch that tables are read from where they have it, and written to; that of the IO manager. "
        "None or an empty text is the main branch; see `deployment_branch`.",
    )

    _address_of: Any = PrivateAttr(default=None)

    def uri(self, asset_key: dg.AssetKey | Sequence[str] | str, *, is_written: bool = False) -> str:
        """URI of the table of an asset.

        Args:
            asset_key: Key of the asset; a str is one part or parts joined by ``/``.
            is_written: Give the table a place if its namespace does not know it yet.
        """
        key = _key(asset_key)
        given: str | None = None if self._address_of is None else self._address_of(key)
        return self.tables.uri(key, given=given, is_written=is_written)

    def with_addresses(self, address_of: Callable[[dg.AssetKey], str | None]) -> LanceResource:
        """Return a copy that finds some tables elsewhere.

        Args:
            address_of: Returns the metadata ``lance/uri`` of an asset, or None if its table is where its key says.
        """
        lance = copy(self)
        lance._address_of = address_of  # noqa: SLF001 - of a copy of this
        return lance

    def exists(self, asset_key: dg.AssetKey | Sequence[str] | str) -> bool:
        """Return whether the table is there."""
        return self.tables.find(self.uri(asset_key)) is not None

    def dataset(
        self,
        asset_key: dg.AssetKey | Sequence[str] | str,
        *,
        version: int | str | None = None,
        branch: str | None = None,
        as_of: datetime | str | None = None,
    ) -> lance_core.LanceDataset:
        """Open an asset's table.

        Args:
            asset_key: Key of the asset.
            version: Version number, tag, or None for the newest.
            branch: Branch, or None for the resource's own branch; where a table does not have that, its main branch is
                read. To change a table, take ``writable``.
            as_of: The newest version before this point in time; counts only without ``version``.

        Raises:
            DatasetNotFoundError: The asset was never materialized here.
        """
        uri = self.uri(asset_key)
        try:
            if self.own_branch is not None and (version, branch, as_of) == (None, None, None):
                return self.tables.open_preferred(uri, self.own_branch)
            return self.tables.open(uri, version=version, branch=branch, as_of=as_of)
        except DatasetNotFoundError as error:
            name = _key(asset_key).to_user_string()
            msg = f"There is no table of {name} yet: materialize it, or look whether its name and `root` are right."
            raise DatasetNotFoundError(msg, path=uri) from error

    @property
    def own_branch(self) -> str | None:
        """The branch that the resource works on; None for the main branch."""
        return own_branch({}, self.branch)

    def writable(self, asset_key: dg.AssetKey | Sequence[str] | str) -> lance_core.LanceDataset:
        """Open an asset's table to change it: the resource's own branch, which is begun if the table lacks it.

        Args:
            asset_key: Key of the asset.

        Raises:
            DatasetNotFoundError: The asset was never materialized here.
        """
        return self.tables.open(self._own_uri(asset_key))

    def _own_uri(self, asset_key: dg.AssetKey | Sequence[str] | str, schema: pa.Schema | None = None) -> str:
        uri = self.uri(asset_key, is_written=schema is not None)
        return uri if self.own_branch is None else self.tables.branch_uri(uri, self.own_branch, schema)

    @with_options("lance_core.write:WriteArguments", defaults_of="lance_core.write:write_dataset")
    def write(
        self,
        asset_key: dg.AssetKey | Sequence[str] | str,
        data: Any,
        *,
        mode: str = "append",
        **options: Unpack[WriteArguments],
    ) -> lance_core.LanceDataset:
        """Write to an asset's table in one commit; an asset that does so itself can return the dataset.

        Args:
            asset_key: Key of the asset.
            data: As for ``lance_core.write_dataset``.
            mode: ``create``, ``append`` or ``overwrite``.
            **options: Likewise.
        """
        from lance_core.write import WriteArguments  # noqa: PLC0415 imports numpy and Arrow

        check_options("write", WriteArguments, options)
        if self.own_branch is None:
            uri = self.uri(asset_key, is_written=True)
            given: Any = {**self.tables.options_of(uri), **options}
            return lance_core.write_dataset(data, uri, mode=mode, **given)
        uri = self._own_uri(asset_key, getattr(data, "schema", None))
        given = {**self.tables.options_of(uri), **options}
        # A branch that was just begun is there already.
        return lance_core.write_dataset(data, uri, mode="append" if mode == "create" else mode, **given)

    def publish(
        self,
        asset_key: dg.AssetKey | Sequence[str] | str,
        branch: str,
        *,
        where: str | None = None,
        context: dg.AssetExecutionContext | None = None,
    ) -> lance_core.LanceDataset:
        """Make rows of a branch those of the main branch in one commit: the last step of write, audit, publish.

        Args:
            asset_key: Key of the asset.
            branch: The branch.
            where: SQL predicate: only these rows are replaced, by those of the branch; all rows and columns if None.
            context: Of the asset that publishes: the published asset (its partitions that the run is about) is then
                materialized in Dagster, too, so that assets downstream of it become stale and their automation fires.
                The run on the branch did not do that.

        Raises:
            RefNotFoundError: No such branch.
            CommitConflictError: Without ``where``: others changed the main branch since the branch began.
        """
        made = publish(self.tables, self.uri(asset_key), branch, where=where)
        if context is not None:
            is_partitioned = context.has_partition_key or context.has_partition_key_range
            partitions = list(context.partition_keys) if is_partitioned else [None]
            for event in self.published_events(_key(asset_key), branch, made, partitions=partitions):
                context.log_event(event)
        return made

    def published_events(
        self,
        asset_key: dg.AssetKey,
        branch: str,
        dataset: lance_core.LanceDataset,
        *,
        partitions: Sequence[str | None] = (None,),
    ) -> list[dg.AssetMaterialization]:
        """Materializations that tell Dagster what was published.

        Args:
            asset_key: Key of the asset.
            branch: The branch that was published.
            dataset: The main branch at the version that was made.
            partitions: Partition keys that were published, or None for the asset.
        """
        metadata = {
            **storage_metadata(asset_key, dataset.uri),
            "dagster/row_count": dataset.count_rows(),
            "lance/version": dataset.version,
            PUBLISHED: branch,
        }
        tags = {"dagster/data_version": str(dataset.version)}
        return [dg.AssetMaterialization(asset_key, partition=key, metadata=metadata, tags=tags) for key in partitions]

    def history(self, asset_key: dg.AssetKey | Sequence[str] | str, *, limit: int = 20) -> list[dict[str, Any]]:
        """Return the newest versions, newest first.

        Args:
            asset_key: Key of the asset.
            limit: How many; one manifest and one transaction are read for each.

        Returns:
            Dicts with ``version``, ``timestamp`` (UTC), ``operation``, ``rows``, and ``properties``, among them who
            made it: ``dagster/run_id``, ``dagster/step_key``, ``dagster/partitions``, ``lance/inputs`` and the like.
        """
        dataset = self.dataset(asset_key)
        return [
            {
                "version": version["version"],
                "timestamp": version["timestamp"].astimezone(UTC),
                "operation": None if made is None else type(made.operation).__name__,
                "rows": at.count_rows(),
                "properties": {} if made is None else dict(made.transaction_properties or {}),
            }
            for number in _newest(dataset, limit)
            for at in [dataset.checkout_version(number)]
            for version, made in [(at.get_version(), at.read_transaction(number))]
        ]

    def tags(self, asset_key: dg.AssetKey | Sequence[str] | str) -> Mapping[str, int]:
        """Tag name -> version."""
        dataset = self.dataset(asset_key)
        return {name: tag["version"] for name, tag in dataset.tags.list().items()}

    @with_options("lance_core.optimize:CompactionArguments")
    def compact(
        self,
        asset_key: dg.AssetKey | Sequence[str] | str,
        *,
        num_threads: int | None = None,
        conflict_retries: int | None = None,
        transaction_properties: Mapping[str, str] | None = None,
        **options: Unpack[CompactionArguments],
    ) -> lance_core.CompactionMetrics:
        """Merge small fragments and drop deleted rows; arguments as of ``dataset.optimize.compact_files``."""
        return self.writable(asset_key).optimize.compact_files(
            num_threads=num_threads,
            conflict_retries=conflict_retries,
            transaction_properties=transaction_properties,
            **options,
        )

    def cleanup(
        self,
        asset_key: dg.AssetKey | Sequence[str] | str,
        older_than: timedelta | None = None,
        retain_versions: int | None = None,
        *,
        versions: Sequence[int] | None = None,
        delete_unverified: bool = False,
        force: bool = False,
        error_if_tagged_old_versions: bool = True,
        keep_versions: Collection[int] = (),
        grace_period: timedelta = _NO_TIME,
    ) -> lance_core.CleanupStats:
        """Delete old versions, and files that only they need; arguments as of ``dataset.cleanup_old_versions``."""
        return self.writable(asset_key).cleanup_old_versions(
            older_than,
            retain_versions,
            versions=versions,
            delete_unverified=delete_unverified,
            force=force,
            error_if_tagged_old_versions=error_if_tagged_old_versions,
            keep_versions=keep_versions,
            grace_period=grace_period,
        )

    def statistics(self, asset_key: dg.AssetKey | Sequence[str] | str) -> Mapping[str, int | float]:
        """Rows, fragments, files, bytes and the like of the newest version, by metadata key (``lance/...``)."""
        return table_numbers(self.dataset(asset_key))


def _newest(dataset: lance_core.LanceDataset, limit: int) -> list[int]:
    return [ref["version"] for ref in reversed(dataset.version_refs()[-limit:])]


def _key(asset_key: dg.AssetKey | Sequence[str] | str) -> dg.AssetKey:
    if isinstance(asset_key, dg.AssetKey):
        return asset_key
    if isinstance(asset_key, str):
        return dg.AssetKey.from_user_string(asset_key)
    return dg.AssetKey(list(asset_key))
