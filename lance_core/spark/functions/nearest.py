"""Search the nearest vectors for each row of a DataFrame: tasks search for the queries that they have."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lance_core.errors import InvalidInputError
from lance_core.spark.common.types import spark_schema
from lance_core.spark.session import is_case_sensitive

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

_QUERY_INDEX = "query_index"
_MOST_QUERIES = 256
"""Queries that are searched at one go."""


def nearest_lance(
    spark: SparkSession,
    uri: str,
    queries: DataFrame,
    *,
    column: str,
    query_column: str,
    k: int = 10,
    columns: Sequence[str] | None = None,
    filter: str | None = None,  # noqa: A002 the name in pylance
    version: int | None = None,
    storage_options: Mapping[str, str] | None = None,
    metric: str | None = None,
    nprobes: int | None = None,
    refine_factor: int | None = None,
    use_index: bool = True,
) -> DataFrame:
    """Join queries with the rows whose vectors are nearest to them.

    Args:
        spark: The session.
        uri: Address of the dataset.
        queries: The queries; rows without a vector give no rows.
        column: Column of vectors in the table.
        query_column: Column of vectors in ``queries``: arrays of numbers.
        k: Rows to find for each query.
        columns: Columns of the table to add; all but ``column`` if None.
        filter: SQL condition that says which rows of the table are searched.
        version: Version to search; the newest now if None.
        storage_options: Settings of the storage service.
        metric: As ``nearest`` of `lance_core.LanceDataset.scanner` has it, like those that follow.
        nprobes: Partitions of an index to search.
        refine_factor: Compare the vectors of so many times ``k`` rows that an index finds.
        use_index: If false, all vectors are compared.

    Returns:
        The columns of ``queries``, those of the table and ``_distance``, in no order.

    Raises:
        InvalidInputError: A column that does not exist, or has the same name on both sides.
    """
    import lance_core  # noqa: PLC0415 the tasks import it as well

    dataset = lance_core.dataset(uri, version=version, storage_options=storage_options)
    if query_column not in queries.columns:
        raise InvalidInputError(f"'queries' has no column {query_column!r}, but {', '.join(queries.columns)}")
    names = [name for name in dataset.schema.names if name != column] if columns is None else list(columns)
    nearest = {"column": column, "k": k, "metric": metric, "nprobes": nprobes, "refine_factor": refine_factor}
    search = partial(
        search_batches,
        uri=dataset.uri,  # workers may run in another folder than the caller
        version=dataset.version,
        storage_options=storage_options,
        query_column=query_column,
        columns=names,
        condition=filter,
        nearest={**nearest, "use_index": use_index},
    )
    kind = dataset.schema.field(column).type if column in dataset.schema.names else None
    if kind is None or not pa.types.is_fixed_size_list(kind):
        raise InvalidInputError(f"the table has no top-level column {column!r} of vectors of one size")
    added = dataset.scanner(columns=names, nearest={**nearest, "q": [[0] * kind.list_size]}).schema
    given = queries.schema
    schema = type(given)([*given.fields, *spark_schema(added.remove(added.get_field_index(_QUERY_INDEX))).fields])
    names_alike = schema.names if is_case_sensitive(spark) else [name.lower() for name in schema.names]
    twice = sorted(
        {name for name, alike in zip(schema.names, names_alike, strict=True) if names_alike.count(alike) > 1}
    )
    if twice:
        raise InvalidInputError(
            f"'queries' and the table both have columns {', '.join(twice)}. Give 'columns', or rename them."
        )
    return queries.mapInArrow(search, schema)


def search_batches(
    batches: Iterator[pa.RecordBatch],
    *,
    uri: str,
    version: int,
    storage_options: Mapping[str, str] | None,
    query_column: str,
    columns: Sequence[str],
    condition: str | None,
    nearest: Mapping[str, Any],
) -> Iterator[pa.RecordBatch]:
    """Search for the queries of batches; arguments as of `nearest_lance`.

    Yields:
        Batches with the columns of the queries, those of the table and ``_distance``.
    """
    import lance_core  # noqa: PLC0415 it comes with this package

    dataset = lance_core.dataset(uri, version=version, storage_options=storage_options)
    for whole in batches:
        batch = whole.filter(whole.column(query_column).is_valid())
        for start in range(0, batch.num_rows, _MOST_QUERIES):
            part = batch.slice(start, _MOST_QUERIES)
            vectors = part.column(query_column).to_pylist()
            rows = dataset.to_table(
                columns=list(columns), nearest={**nearest, "q": vectors}, filter=condition, prefilter=True
            )
            owners = rows[_QUERY_INDEX].combine_chunks()
            taken = pa.Table.from_batches([part]).take(owners)
            matches = rows.remove_column(rows.schema.get_field_index(_QUERY_INDEX))
            joined = pa.table([*taken.columns, *matches.columns], names=[*taken.schema.names, *matches.schema.names])
            yield from joined.combine_chunks().to_batches()
