"""Methods of `LanceDataset` that read rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from lance_core.common.frozen import replace
from lance_core.common.signatures import check_options, with_options
from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.format.extensions import table_with_types
from lance_core.methods.arguments import row_numbers
from lance_core.scan.fragments import count_all_matching
from lance_core.scan.indexed import count_by_indices, with_index_answer
from lance_core.scan.plan import known_plan, plan_scan, with_row_starts
from lance_core.scan.query import make_columns, plan_query
from lance_core.scan.take import take_rows
from lance_core.scanner import DEFAULT_BLOB_MODE, ReadOptions, ScanKeywords, ScanOptions, make_scanner
from lance_core.table.naming import naming

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    import pyarrow.dataset as pads
    from pyarrow.compute import Expression

    from lance_core.format.table.fragment import Fragment
    from lance_core.format.table.manifest import Manifest
    from lance_core.fragment import LanceFragment
    from lance_core.index.text.query import MinHashQuery
    from lance_core.methods.protocols import OpenDataset
    from lance_core.methods.sql_query import SqlQueryBuilder
    from lance_core.scan.plan import ScanPlan
    from lance_core.scanner import LanceScanner


@with_options(ScanKeywords)
def scanner(  # noqa: PLR0917 positional as in pylance
    dataset: OpenDataset,
    columns: Sequence[str] | Mapping[str, str] | None = None,
    filter: str | Expression | None = None,  # noqa: A002 the name in pylance
    limit: int | None = None,
    offset: int | None = None,
    nearest: Mapping[str, Any] | MinHashQuery | None = None,
    batch_size: int | None = None,
    batch_size_bytes: int | None = None,
    batch_readahead: int | None = None,
    fragment_readahead: int | None = None,
    scan_in_order: bool | None = None,
    fragments: Sequence[LanceFragment] | None = None,
    index_segments: Iterable[Any] | None = None,
    full_text_query: Any = None,
    **options: Unpack[ScanKeywords],
) -> LanceScanner:
    """Prepare a scan, to be read as table, batches or stream.

    Arguments that are None come from the ``default_scan_options`` of the dataset.

    Args:
        columns: Names, or dotted paths inside structs; or a dict of names and the SQL expressions that make them. All
            columns if None. Also ``_rowid``, ``_rowaddr`` and ``_rowoffset`` (place among the live rows).
        filter: SQL text or pyarrow expression; rows for which it is null do not match.
        limit: Rows at most.
        offset: Matching rows to leave out first.
        nearest: Search the nearest vectors: a dict with ``column``; ``q``, one query vector or a list of them, which
            adds ``query_index``; ``k`` rows for each (10). Rows come with ``_distance``, the nearest first. Options are
            ``metric``: ``l2``, ``cosine``, ``dot``, or ``hamming`` for uint8; ``distance_range``: a pair of bounds;
            ``use_index``: false to compare all vectors; ``nprobes``, ``minimum_nprobes``, ``maximum_nprobes``: how many
            partitions of an index are searched; ``refine_factor``: compare the vectors of so many times ``k`` rows that
            an index finds. ``ef``, ``query_parallelism`` and ``approx_mode`` are accepted. Or a `MinHashQuery`, which
            searches near duplicates of a text: ``limit`` rows, or 10.
        batch_size: Rows of a batch at most; by default as many as make about 4 MiB, with a filter 32 MiB.
        batch_size_bytes: Bytes in a batch, roughly.
        batch_readahead: Accepted: it would make no difference to the rows.
        fragment_readahead: Accepted: it would make no difference to the rows.
        scan_in_order: Accepted: the order is always that of the table.
        fragments: Read only these.
        index_segments: Not supported.
        full_text_query: Search texts: words, which all columns with full-text indices are searched for; a dict with
            ``query`` and ``columns``; or a query of `lance_core.query`. Rows come with ``_score`` (BM25), the best
            first.
        **options: See `lance_core.scanner.ScanKeywords`.

    Raises:
        InvalidInputError: Unknown columns, SQL that does not fit, negative numbers.
        UnsupportedError: SQL or arguments that are not supported.

    Examples:
        >>> scanner = table.scanner(columns={"loud": "upper(name)"}, filter="height > 500", limit=1)
        >>> scanner.to_table().to_pylist()
        [{'loud': 'PUNE'}]
    """
    check_options("scanner", ScanKeywords, options)
    given: dict[str, Any] = {
        "columns": columns,
        "filter": filter,
        "limit": limit,
        "offset": offset,
        "nearest": nearest,
        "batch_size": batch_size,
        "batch_size_bytes": batch_size_bytes,
        "batch_readahead": batch_readahead,
        "fragment_readahead": fragment_readahead,
        "scan_in_order": scan_in_order,
        "index_segments": index_segments,
        "full_text_query": full_text_query,
        **options,
    }
    defaults = dataset.default_scan_options or {}
    chosen = {**given, **{name: value for name, value in defaults.items() if given.get(name) is None}}
    return make_scanner(dataset.snapshot, dataset.files, _chosen(dataset, fragments), **chosen)


@with_options(ReadOptions)
def to_batches(  # noqa: PLR0917 positional as in pylance
    dataset: OpenDataset,
    columns: Sequence[str] | Mapping[str, str] | None = None,
    filter: str | Expression | None = None,  # noqa: A002 the name in pylance
    limit: int | None = None,
    offset: int | None = None,
    nearest: Mapping[str, Any] | MinHashQuery | None = None,
    batch_size: int | None = None,
    batch_size_bytes: int | None = None,
    batch_readahead: int | None = None,
    fragment_readahead: int | None = None,
    scan_in_order: bool | None = None,
    **options: Unpack[ReadOptions],
) -> Iterator[pa.RecordBatch]:
    """Read the rows in order, batch by batch; arguments and errors as in `scanner`.

    Raises:
        CorruptDataError: A damaged file.

    Examples:
        >>> [batch.num_rows for batch in table.to_batches(columns=["id"], batch_size=3)]
        [3, 1]
    """
    del batch_readahead, fragment_readahead, scan_in_order  # which make no difference to the rows
    made = scanner(dataset, columns, filter, limit, offset, nearest, batch_size, batch_size_bytes, **options)
    return made.to_batches()


@with_options(ReadOptions)
def to_table(  # noqa: PLR0917 positional as in pylance
    dataset: OpenDataset,
    columns: Sequence[str] | Mapping[str, str] | None = None,
    filter: str | Expression | None = None,  # noqa: A002 the name in pylance
    limit: int | None = None,
    offset: int | None = None,
    nearest: Mapping[str, Any] | MinHashQuery | None = None,
    batch_size: int | None = None,
    batch_size_bytes: int | None = None,
    batch_readahead: int | None = None,
    fragment_readahead: int | None = None,
    scan_in_order: bool | None = None,
    **options: Unpack[ReadOptions],
) -> pa.Table:
    """Read rows into memory; arguments and errors as in `scanner`.

    Examples:
        >>> table.to_table(columns=["name"], filter="height > 500").to_pylist()
        [{'name': 'Pune'}, {'name': 'Cusco'}]
        >>> table.to_table(["name"], order_by=["height"], limit=2)["name"].to_pylist()
        ['Oslo', 'Lima']
    """
    del batch_readahead, fragment_readahead, scan_in_order  # which make no difference to the rows
    made = scanner(dataset, columns, filter, limit, offset, nearest, batch_size, batch_size_bytes, **options)
    return made.to_table()


@with_options(ReadOptions)
def to_reader(  # noqa: PLR0917 positional as in pylance
    dataset: OpenDataset,
    columns: Sequence[str] | Mapping[str, str] | None = None,
    filter: str | Expression | None = None,  # noqa: A002 the name in pylance
    limit: int | None = None,
    offset: int | None = None,
    nearest: Mapping[str, Any] | MinHashQuery | None = None,
    batch_size: int | None = None,
    batch_size_bytes: int | None = None,
    batch_readahead: int | None = None,
    fragment_readahead: int | None = None,
    scan_in_order: bool | None = None,
    **options: Unpack[ReadOptions],
) -> pa.RecordBatchReader:
    """Stream the rows, as DuckDB and others take them; arguments as in `scanner`. Not in pylance.

    Examples:
        >>> reader = table.to_reader(filter="id < 3")
        >>> reader.read_all().num_rows
        2
    """
    del batch_readahead, fragment_readahead, scan_in_order  # which make no difference to the rows
    made = scanner(dataset, columns, filter, limit, offset, nearest, batch_size, batch_size_bytes, **options)
    return made.to_reader()


def to_arrow_dataset(dataset: OpenDataset) -> pads.Dataset:
    """Return the table as a dataset of pyarrow, of which others read only what they need. Not in pylance.

    DuckDB and Polars push columns and conditions down into such datasets; DuckDB reads all of a `LanceDataset`.

    Examples:
        >>> table.to_arrow_dataset().to_table(columns=["id"]).column_names
        ['id']
    """
    from lance_core.methods.arrow_dataset import ArrowDataset  # noqa: PLC0415 - imports all of pyarrow.dataset

    return ArrowDataset(dataset.schema, partial(scanner, dataset))


def arrow_c_stream(dataset: OpenDataset, requested_schema: object = None) -> object:
    """Return all rows through the Arrow PyCapsule interface, for Polars, DuckDB and others."""
    return scanner(dataset).__arrow_c_stream__(requested_schema)


@with_options(ReadOptions)
def to_pandas(  # noqa: PLR0917 positional as in pylance
    dataset: OpenDataset,
    columns: Sequence[str] | Mapping[str, str] | None = None,
    filter: str | Expression | None = None,  # noqa: A002 the name in pylance
    limit: int | None = None,
    offset: int | None = None,
    nearest: Mapping[str, Any] | MinHashQuery | None = None,
    batch_size: int | None = None,
    batch_readahead: int | None = None,
    fragment_readahead: int | None = None,
    scan_in_order: bool | None = None,
    *,
    batch_size_bytes: int | None = None,
    blob_mode: str = DEFAULT_BLOB_MODE,
    **options: Unpack[ReadOptions],
) -> Any:
    """Read rows into a pandas DataFrame; arguments as in `scanner` and `LanceScanner.to_pandas`."""
    del batch_readahead, fragment_readahead, scan_in_order  # which make no difference to the rows
    made = scanner(dataset, columns, filter, limit, offset, nearest, batch_size, batch_size_bytes, **options)
    return made.to_pandas(blob_mode=blob_mode)


@with_options(ScanOptions)
def head(
    dataset: OpenDataset,
    num_rows: int,
    columns: Sequence[str] | Mapping[str, str] | None = None,
    filter: str | Expression | None = None,  # noqa: A002 the name in pylance
    offset: int | None = None,
    **options: Unpack[ScanOptions],
) -> pa.Table:
    """Read the first rows; arguments as in `scanner`.

    Examples:
        >>> table.head(2, columns=["name"])["name"].to_pylist()
        ['Oslo', 'Lima']
    """
    return scanner(dataset, columns, filter, num_rows, offset, **options).to_table()


def slice_rows(
    dataset: OpenDataset, start: int, end: int, columns: Sequence[str] | Mapping[str, str] | None = None
) -> pa.Table:
    """Rows by their place in the table, from ``start`` up to but not with ``end``; fewer if the table ends before.

    Raises:
        InvalidInputError: A negative place, or an end before the start.
    """
    if not 0 <= start <= end:
        raise InvalidInputError(f"'start' and 'end' must be 0 <= start <= end, not {start} and {end}")
    return to_table(dataset, columns, offset=start, limit=end - start)


def take(
    dataset: OpenDataset,
    indices: Sequence[int] | pa.Array,
    columns: Sequence[str] | Mapping[str, str] | None = None,
) -> pa.Table:
    """Return rows by their place in the table.

    Args:
        indices: Places, from 0, deleted rows not counted; any order, repeats allowed.
        columns: As in `scanner`.

    Raises:
        InvalidInputError: There is no such row.

    Examples:
        >>> table.take([3, 0], columns=["name"])["name"].to_pylist()
        ['Cusco', 'Oslo']
    """
    positions = row_numbers(indices, "indices").astype(np.int64)
    if not isinstance(columns, Mapping):
        return table_with_types(take_rows(dataset.snapshot, dataset.files, positions, make_plan(dataset, columns)))
    with naming(dataset.snapshot.store):
        query = plan_query(dataset.snapshot.manifest.schema, columns=columns)
        query = replace(query, plan=with_row_starts(query.plan, dataset.snapshot.manifest))
    return table_with_types(make_columns(take_rows(dataset.snapshot, dataset.files, positions, query.plan), query))


def sample(
    dataset: OpenDataset,
    num_rows: int,
    columns: Sequence[str] | Mapping[str, str] | None = None,
    randomize_order: bool = True,
    *,
    seed: int | None = None,
) -> pa.Table:
    """Return rows chosen at random, each at most once.

    Args:
        num_rows: How many.
        columns: As in `scanner`.
        randomize_order: Rows come in random order; else in the order of the table, which is faster to read.
        seed: For the same rows again; not in pylance.

    Raises:
        InvalidInputError: More rows than there are, or fewer than none.

    Examples:
        >>> table.sample(2, seed=7).num_rows
        2
    """
    total = count_rows(dataset)
    if not 0 <= num_rows <= total:
        raise InvalidInputError(f"cannot sample {num_rows} of {total} rows")
    positions = np.random.default_rng(seed).choice(total, num_rows, replace=False, shuffle=randomize_order)
    return take(dataset, positions if randomize_order else np.sort(positions), columns)


def count_rows(dataset: OpenDataset, filter: str | Expression | None = None) -> int:  # noqa: A002 the name in pylance
    """Count the rows, or those that match a filter. Without a filter no data is read.

    Examples:
        >>> table.count_rows(), table.count_rows("height > 500")
        (4, 2)
    """
    if filter is None:
        return dataset.snapshot.manifest.num_rows
    manifest = dataset.snapshot.manifest
    with naming(dataset.snapshot.store):
        plan = _plan_scan(manifest, [], filter)
        counted = count_by_indices(with_row_starts(plan, manifest), manifest, dataset.files)
    if isinstance(counted, int):
        return counted
    return count_all_matching(dataset.files, manifest.fragments, counted)


def make_plan(
    dataset: OpenDataset,
    columns: Sequence[str] | None,
    filter: str | Expression | None = None,  # noqa: A002 the name in pylance
) -> ScanPlan:
    """Plan a scan of this dataset; errors name its address."""
    manifest = dataset.snapshot.manifest
    with naming(dataset.snapshot.store):
        if filter is not None:
            plan = _plan_scan(manifest, columns, filter)
            return with_index_answer(with_row_starts(plan, manifest), manifest, dataset.files)
        names = None if columns is None else tuple(columns)
        plan = known_plan(manifest.schema, names, lambda: _plan_scan(manifest, columns, None))
        return with_row_starts(plan, manifest)


def _plan_scan(manifest: Manifest, columns: Sequence[str] | None, filter: str | Expression | None) -> ScanPlan:  # noqa: A002 as above
    return plan_scan(
        manifest.schema,
        columns=columns,
        filter=filter,
        batch_size=None,
        with_row_id=False,
        with_row_address=False,
    )


def sql(dataset: OpenDataset, sql: str) -> SqlQueryBuilder:
    """Return a query over this version, called ``dataset`` in it.

    Args:
        sql: ``SELECT`` with conditions, expressions, groups, order and limits; aggregates are count, sum, avg, min,
            max, bool_and, bool_or, stddev and var. For joins and windows use DuckDB, which reads datasets as they are.

    Examples:
        >>> query = table.sql("SELECT max(height) AS highest FROM dataset").build()
        >>> query.to_stream_reader().read_all().to_pylist()
        [{'highest': 3399}]
    """
    from lance_core.methods.sql_query import SqlQueryBuilder  # noqa: PLC0415 the SQL parser is slow to import

    return SqlQueryBuilder(dataset, sql)


def get_fragments(dataset: OpenDataset, filter: None = None) -> list[LanceFragment]:  # noqa: A002 the name in pylance
    """Return all fragments, in order.

    Args:
        filter: Must be None; fragments cannot be chosen by a condition.

    Examples:
        >>> [fragment.count_rows() for fragment in table.get_fragments()]
        [4]
    """
    if filter is not None:
        raise UnsupportedError("cannot select fragments by a filter. Pass the filter to a scan")
    from lance_core.fragment import LanceFragment  # noqa: PLC0415 whoever scans a table needs no fragments

    ids = dataset.snapshot.manifest.fragments.ids.tolist()
    return [LanceFragment(dataset, number, index=index) for index, number in enumerate(ids)]


def get_fragment(dataset: OpenDataset, fragment_id: int) -> LanceFragment | None:
    """Return the fragment with this id, None if there is none.

    Examples:
        >>> table.get_fragment(0).count_rows()
        4
    """
    from lance_core.fragment import LanceFragment  # noqa: PLC0415 as above

    is_there = bool((dataset.snapshot.manifest.fragments.ids == fragment_id).any())
    return LanceFragment(dataset, fragment_id) if is_there else None


def _chosen(dataset: OpenDataset, fragments: Sequence[LanceFragment] | None) -> Sequence[Fragment]:
    fragments_here = dataset.snapshot.manifest.fragments
    if fragments is None:
        return fragments_here  # type: ignore[return-value] a sequence that decodes when asked
    try:
        wanted = [fragment.fragment_id for fragment in fragments]
    except (TypeError, AttributeError) as error:
        raise InvalidInputError(f"'fragments' must be a list of LanceFragment, not {fragments!r}") from error
    by_id = {fragment.id: fragment for fragment in fragments_here.select(wanted)}
    if not by_id.keys() >= set(wanted):
        raise InvalidInputError(
            f"version {dataset.version} does not contain all of the fragments given", path=dataset.uri
        )
    return [by_id[number] for number in wanted]
