"""One table as an object, for those who know Delta's ``DeltaTable``."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Unpack

from lance_core.common.signatures import check_options, with_options
from lance_core.dataset import dataset as open_dataset
from lance_core.errors import InvalidInputError, RefNotFoundError
from lance_core.optimize import CompactionArguments
from lance_core.spark import table_frames
from lance_core.spark.common.options import format_options
from lance_core.spark.common.read_options import ReadOptions
from lance_core.spark.functions.delta_names import refused
from lance_core.spark.functions.distribute import compact_lance
from lance_core.spark.functions.merge import LanceMergeBuilder
from lance_core.spark.functions.modification import ChangeOptions
from lance_core.spark.functions.modify import create_index_lance, delete_lance, update_lance
from lance_core.spark.functions.read import absolute
from lance_core.spark.session import register

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from pyspark.sql import DataFrame, SparkSession

    from lance_core.dataset import LanceDataset
    from lance_core.maintenance.cleanup import CleanupStats
    from lance_core.optimize import CompactionMetrics
    from lance_core.spark.common.conditions import Condition
    from lance_core.spark.functions.result import CommitResult


_STORE_OPTIONS = ("storage_options", "base_store_params")


class LanceOptimizeBuilder:
    """Made by `LanceTable.optimize`, as in Delta."""

    def __init__(self, spark: SparkSession, uri: str, settings: Mapping[str, Any]) -> None:
        self._spark = spark
        self._uri = uri
        self._settings = dict(settings)

    @with_options(CompactionArguments)
    def execute_compaction(self, **options: Unpack[CompactionArguments]) -> CompactionMetrics:
        """Merge small fragments and drop deleted rows, in Spark's tasks; see `lance_core.spark.compact_lance`."""
        check_options("execute_compaction", CompactionArguments, options)
        return compact_lance(self._spark, self._uri, **self._settings, **options)

    executeCompaction = execute_compaction  # noqa: N815 the name in Delta
    executeZOrderBy = refused("executeZOrderBy")  # noqa: N815
    where = refused("where")


class LanceTable:
    """A table, or a branch of one; `for_path` makes it.

    Methods have the names of Delta's ``DeltaTable`` as well. All of them work on the newest version. Conditions and
    values are SQL text or columns of Spark, as for `lance_core.spark.delete_lance`.

    In Spark Connect, `to_df` and the rows that tasks read and write are the server's; the client, too, must reach the
    table.
    """

    def __init__(self, spark: SparkSession, uri: str, settings: Mapping[str, Any], alias: str | None = None) -> None:
        self._spark = spark
        self._uri = uri
        self._settings = dict(settings)
        self._alias = alias

    @classmethod
    def for_path(
        cls,
        spark: SparkSession,
        uri: str,
        *,
        branch: str | None = None,
        storage_options: Mapping[str, str] | None = None,
        base_store_params: Mapping[str, Mapping[str, str]] | None = None,
    ) -> LanceTable:
        """Open a table.

        Args:
            spark: The session; the data source is registered in it.
            uri: Address of the dataset.
            branch: Branch to work on; the main branch if None.
            storage_options: Options of the store.
            base_store_params: Options of other places that the table names, by address; an entry also allows the place.

        Raises:
            DatasetNotFoundError, RefNotFoundError: There is no such thing.

        Examples:
            >>> table = LanceTable.for_path(spark, "cities.lance")
            >>> table.delete("height < 100").num_deleted_rows
            1
        """
        register(spark)
        settings: dict[str, Any] = {"storage_options": storage_options, "base_store_params": base_store_params}
        dataset = open_dataset(absolute(uri), branch=branch, **settings)
        return cls(spark, dataset.uri, settings)

    forPath = for_path  # noqa: N815 the name in Delta

    @classmethod
    def for_name(cls, spark: SparkSession, name: str) -> LanceTable:
        """Open a table of a Lance catalog, in a classic session.

        Args:
            spark: The session; its settings have the catalog, and options of its store.
            name: Name of the table as in SQL, such as ``lance.db.events``.

        Raises:
            AnalysisException: There is no such table, or it is none of a Lance catalog.
        """
        register(spark)
        location = spark.sql(f"SELECT location FROM {name}.detail").collect()[0][0]  # noqa: S608 of the user
        catalog = name.partition(".")[0].strip("`")
        catalog = catalog if spark.conf.get(f"spark.sql.catalog.{catalog}", None) else spark.catalog.currentCatalog()
        texts = {key: spark.conf.get(f"spark.sql.catalog.{catalog}.{key}", None) for key in _STORE_OPTIONS}
        settings = {key: json.loads(text) for key, text in texts.items() if text is not None}
        return cls.for_path(spark, location, **settings)

    forName = for_name  # noqa: N815 the name in Delta

    # ------------------------------------------------------------------------------------------------------- reading

    def to_df(self) -> DataFrame:
        """Return the rows of the table; a classic session reads the newest version whenever it plans a query."""
        options = format_options(ReadOptions(path=self._uri, **self._settings))
        frame = self._spark.read.format("lance").options(**options).load()
        return frame if self._alias is None else frame.alias(self._alias)

    def alias(self, alias: str) -> LanceTable:
        """Return the same table with a name that conditions and values of merges may put before columns."""
        return type(self)(self._spark, self._uri, self._settings, alias)

    def history(self, limit: int | None = None) -> DataFrame:
        """Versions with their operations, the newest first.

        Args:
            limit: Versions at most; all if None.
        """
        return self._frame(table_frames.history_rows(self._open(), limit), table_frames.HISTORY)

    def detail(self) -> DataFrame:
        """One row about the newest version: its rows, fragments, files and bytes, configuration and metadata."""
        return self._frame([table_frames.detail_row(self._open())], table_frames.DETAIL)

    def files(self) -> DataFrame:
        """Data files of the newest version."""
        return self._frame(table_frames.file_rows(self._open()), table_frames.FILES)

    def tags(self) -> DataFrame:
        """Tags and their versions."""
        return self._frame(table_frames.tag_rows(self._open()), table_frames.TAGS)

    def branches(self) -> DataFrame:
        """Branches and where they come from; the main branch is not among them."""
        return self._frame(table_frames.branch_rows(self._open()), table_frames.BRANCHES)

    def indices(self) -> DataFrame:
        """Indices of the newest version, and how many rows they cover."""
        return self._frame(table_frames.index_rows(self._open()), table_frames.INDICES)

    # ------------------------------------------------------------------------------------------------------ changing

    @with_options(ChangeOptions)
    def delete(self, condition: Condition | None = None, **options: Unpack[ChangeOptions]) -> CommitResult:
        """Delete rows.

        Args:
            condition: Which rows; all if None.
            **options: See `lance_core.spark.ChangeOptions`; options of the store are those of the table.
        """
        chosen = "true" if condition is None else condition
        return delete_lance(self._spark, self._uri, chosen, **self._with("delete", options))

    @with_options(ChangeOptions)
    def update(
        self,
        condition: Condition | None = None,
        set: Mapping[str, Condition] | None = None,  # noqa: A002 the name in Delta
        **options: Unpack[ChangeOptions],
    ) -> CommitResult:
        """Give rows new values.

        Args:
            condition: Which rows; all if None.
            set: New values by name of the column.
            **options: See `lance_core.spark.ChangeOptions`; options of the store are those of the table.
        """
        return update_lance(self._spark, self._uri, set or {}, condition, **self._with("update", options))

    @with_options(ChangeOptions)
    def merge(
        self,
        source: DataFrame,
        condition: Condition | None = None,
        *,
        on: str | Sequence[str] | None = None,
        within: str | None = None,
        **options: Unpack[ChangeOptions],
    ) -> LanceMergeBuilder:
        """Update, insert and delete rows by those of a DataFrame, in one commit; see `lance_core.spark.merge_lance`.

        Args:
            source: The DataFrame. Conditions name its columns by its alias, or by ``source.``.
            condition: Which rows match, such as ``target.id = source.id``; with `alias`, that name instead of
                ``target``.
            on: Columns of the key, instead of a condition.
            within: As for `lance_core.spark.merge_lance`.
            **options: See `lance_core.spark.ChangeOptions`; options of the store are those of the table.

        Raises:
            InvalidInputError: A condition and a key, or names of one side that are those of the other.
        """
        if condition is not None and on is not None:
            raise InvalidInputError("Specify either a condition or 'on', not both.")
        merged = self._with("merge", options)
        return LanceMergeBuilder(source, self._uri, on, within, merged, matching=condition, target=self._alias)

    @with_options(ChangeOptions)
    def create_index(
        self,
        column: str,
        index_type: str,
        *,
        name: str | None = None,
        replace: bool = True,
        train: bool = True,
        fragment_ids: Sequence[int] | None = None,
        rows_per_zone: int | None = None,
        number_of_items: int | None = None,
        max_memory_bytes: int | None = None,
        index_options: Mapping[str, Any] | None = None,
        **options: Unpack[ChangeOptions],
    ) -> CommitResult:
        """Build an index of any kind in Spark's tasks.

        Args:
            column: As in `lance_core.spark.create_index_lance`, like all others.
            index_type: Kind of the index.
            name: Name of the index.
            replace: Take the place of an index of that name.
            train: If false, no fragment is covered.
            fragment_ids: Fragments to cover.
            rows_per_zone: Rows in each run of a ``"ZONEMAP"``.
            number_of_items: Rows in each run of a ``"BLOOMFILTER"``.
            max_memory_bytes: Memory of each task.
            index_options: Other options of the kind.
            **options: See `lance_core.spark.ChangeOptions`; options of the store are those of the table.
        """
        return create_index_lance(
            self._spark,
            self._uri,
            column,
            index_type,
            name=name,
            replace=replace,
            train=train,
            fragment_ids=fragment_ids,
            rows_per_zone=rows_per_zone,
            number_of_items=number_of_items,
            max_memory_bytes=max_memory_bytes,
            index_options=index_options,
            **self._with("create_index", options),
        )

    # --------------------------------------------------------------------------------------------------- maintenance

    def optimize(self) -> LanceOptimizeBuilder:
        """Return a builder of maintenance: ``optimize().execute_compaction()``."""
        return LanceOptimizeBuilder(self._spark, self._uri, self._settings)

    def vacuum(
        self,
        retention_hours: float | None = None,
        *,
        retain_versions: int | None = None,
        error_if_tagged_old_versions: bool = True,
    ) -> CleanupStats:
        """Delete old versions and the files that only they need; see `LanceDataset.cleanup_old_versions`.

        Args:
            retention_hours: Keep versions that were committed within so many hours; 14 days if no rule is given.
            retain_versions: Keep the newest so many versions.
            error_if_tagged_old_versions: Refuse if a tagged version would go, rather than keep it.
        """
        return self._open().cleanup_old_versions(
            None if retention_hours is None else timedelta(hours=retention_hours),
            retain_versions,
            error_if_tagged_old_versions=error_if_tagged_old_versions,
        )

    def restore_to_version(self, version: int | str) -> int:
        """Make an old version the newest again, as a new version.

        Args:
            version: Its number, or a tag.

        Returns:
            The new version.

        Raises:
            VersionNotFoundError, RefNotFoundError: There is no such thing.
        """
        dataset = self._open(version)
        if isinstance(version, str) and dataset.uri != self._uri:
            raise RefNotFoundError(f"Tag {version!r} names a version of another branch.", path=self._uri)
        dataset.restore()
        return dataset.version

    restoreToVersion = restore_to_version  # noqa: N815 the name in Delta
    toDF = to_df  # noqa: N815 the name in Delta

    def restore_to_timestamp(self, timestamp: datetime | str) -> int:
        """Make the newest version committed before a point in time the newest again; without a zone, local time."""
        dataset = open_dataset(self._uri, asof=timestamp, **self._settings)
        return self.restore_to_version(dataset.version)

    restoreToTimestamp = restore_to_timestamp  # noqa: N815 the name in Delta

    convertToDelta = refused("convertToDelta")  # noqa: N815 as all of these
    isDeltaTable = refused("isDeltaTable")  # noqa: N815
    generate = refused("generate")
    create = refused("create")
    createIfNotExists = refused("createIfNotExists")  # noqa: N815
    createOrReplace = refused("createOrReplace")  # noqa: N815
    replace = refused("replace")
    columnBuilder = refused("columnBuilder")  # noqa: N815
    clone = refused("clone")
    cloneAtVersion = refused("cloneAtVersion")  # noqa: N815
    cloneAtTimestamp = refused("cloneAtTimestamp")  # noqa: N815
    upgradeTableProtocol = refused("upgradeTableProtocol")  # noqa: N815
    addFeatureSupport = refused("addFeatureSupport")  # noqa: N815
    dropFeatureSupport = refused("dropFeatureSupport")  # noqa: N815

    def __repr__(self) -> str:
        return f"LanceTable({self._uri!r})"

    def _open(self, version: int | str | None = None) -> LanceDataset:
        return open_dataset(self._uri, version, **self._settings)

    def _with(self, method: str, options: ChangeOptions) -> ChangeOptions:
        check_options(method, ChangeOptions, options)
        merged: Any = {**self._settings, **options}
        return merged

    def _frame(self, rows: Iterable[tuple[Any, ...]], schema: str) -> DataFrame:
        return self._spark.createDataFrame(list(rows), schema)
