"""Scanners: a dataset or fragment together with what shall be read of it. Names and arguments as in pylance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import numpy as np
import pyarrow as pa

from lance_core.blob import BlobFile
from lance_core.common.frozen import replace
from lance_core.common.signatures import with_options
from lance_core.common.unsupported import refuse_given, with_refused
from lance_core.errors import InvalidInputError
from lance_core.format.blobs import blob_view
from lance_core.format.extensions import batches_with_types, with_types
from lance_core.format.table.index_metadata import index_kind
from lance_core.methods.arguments import check_window, names_of
from lance_core.methods.scanner_builder import ScannerBuilder
from lance_core.scan.blob_rows import blob_leaves, described_blobs
from lance_core.scan.fragments import count_all_matching
from lance_core.scan.indexed import with_index_answer
from lance_core.scan.ordering import ColumnOrdering
from lance_core.scan.plan import ROW_ADDRESS, SYSTEM_COLUMNS, plan_filter, plan_scan, with_row_starts
from lance_core.scan.query import plan_query, run_query
from lance_core.table.naming import naming

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt
    from pyarrow.compute import Expression

    from lance_core.format.schema import Field
    from lance_core.format.table.fragment import Fragment
    from lance_core.format.table.manifest import Manifest
    from lance_core.index.text.query import MinHashQuery
    from lance_core.scan.open_files import OpenFiles
    from lance_core.scan.plan import ScanPlan
    from lance_core.scan.query import Query
    from lance_core.scan.ranking import Ranking
    from lance_core.table.snapshot import Snapshot

__all__ = ["ColumnOrdering", "LanceScanner", "ReadOptions", "ScanKeywords", "ScanOptions", "ScannerBuilder"]

BLOB_MODES = ("lazy", "bytes", "descriptions")
DEFAULT_BLOB_MODE = "lazy"
_REFUSED = (
    "index_segments",
    "disable_scoring_autoprojection",
    "row_addr_allowlist",
    "row_addr_blocklist",
    "scan_stats_callback",
)


class ScanKeywords(TypedDict, total=False):
    """Options of scans that are given by name in all methods; names as in pylance.

    Attributes:
        prefilter: In searches the filter says which rows are searched; else it is asked of the rows that are found.
        with_row_id: Add ``_rowid``.
        with_row_address: Add ``_rowaddr``.
        use_stats: Accepted: it would make no difference to the rows.
        fast_search: Searches leave out rows that no index covers.
        io_buffer_size: Accepted.
        late_materialization: Accepted: columns of a condition are read first in any case.
        blob_handling: ``blobs_descriptions``, the default, also called ``all_descriptions``: where blobs are;
            ``all_binary``: their bytes.
        use_scalar_index: If false, indices are not used.
        include_deleted_rows: Deleted rows come too, with a null row id.
        scan_stats_callback: Not supported.
        strict_batch_size: All batches but the last have exactly ``batch_size`` rows.
        order_by: Names or `ColumnOrdering`; with a limit only the first rows are kept in memory, else all.
        disable_scoring_autoprojection: Not supported.
        row_addr_allowlist: Not supported.
        row_addr_blocklist: Not supported.
    """

    prefilter: bool | None
    with_row_id: bool | None
    with_row_address: bool | None
    use_stats: bool | None
    fast_search: bool | None
    io_buffer_size: int | None
    late_materialization: bool | Sequence[str] | None
    blob_handling: str | None
    use_scalar_index: bool | None
    include_deleted_rows: bool | None
    scan_stats_callback: Callable[[Any], None] | None
    strict_batch_size: bool | None
    order_by: Iterable[ColumnOrdering | str] | None
    disable_scoring_autoprojection: bool | None
    row_addr_allowlist: bytes | None
    row_addr_blocklist: bytes | None


class ReadOptions(ScanKeywords, total=False):
    """Options of methods that read a dataset at once, where `LanceDataset.scanner` takes two more by position.

    Attributes:
        index_segments: Not supported.
        full_text_query: See `LanceDataset.scanner`.
    """

    index_segments: Iterable[Any] | None
    full_text_query: Any


class ScanOptions(ReadOptions, total=False):
    """All options of scans, besides columns, filter, limit and offset.

    Attributes:
        nearest: See `LanceDataset.scanner`.
        batch_size: Rows read at a time; by default as many as make about 4 MiB, with a filter 32 MiB.
        batch_size_bytes: Bytes in a batch, roughly.
        batch_readahead: Accepted: it would make no difference to the rows.
        fragment_readahead: Accepted: it would make no difference to the rows.
        scan_in_order: Accepted: the order is always that of the table.
    """

    nearest: Mapping[str, Any] | MinHashQuery | None
    batch_size: int | None
    batch_size_bytes: int | None
    batch_readahead: int | None
    fragment_readahead: int | None
    scan_in_order: bool | None


@with_refused
class LanceScanner:
    """Reads what was asked for; may be read as often as wanted. Made by `LanceDataset.scanner`.

    Args:
        snapshot: The version.
        files: Its open files.
        fragments: What to read, in this order.
        query: What to read of them.
        plan: Plans the same query for another ``blob_handling``; with ``adds_addresses`` row addresses come too.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        files: OpenFiles,
        fragments: Sequence[Fragment],
        query: Query,
        plan: Callable[..., Query],
    ) -> None:
        self._snapshot = snapshot
        self._files = files
        self._fragments = fragments
        self._query = query
        self._plan = plan

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the result."""
        return with_types(self._query.schema)

    projected_schema = schema

    @property
    def dataset_schema(self) -> pa.Schema:
        """Arrow schema of the dataset."""
        return with_types(self._snapshot.manifest.schema.to_arrow())

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Return the rows, batch by batch."""
        batches = run_query(self._files, self._fragments, self._query)
        return batches_with_types(self._query.schema, batches)

    def to_table(self) -> pa.Table:
        """Return the rows, in memory."""
        query = replace(self._query, plan=replace(self._query.plan, is_kept=True))
        batches = batches_with_types(query.schema, run_query(self._files, self._fragments, query))
        return pa.Table.from_batches(batches, schema=self.schema)

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows, as a stream that other libraries take."""
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the Arrow PyCapsule interface."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_pandas(self, *, blob_mode: str = DEFAULT_BLOB_MODE, **arrow_options: Any) -> Any:
        """Read the rows into a pandas DataFrame.

        Args:
            blob_mode: What stands for a blob, inside of structs too: ``lazy``, a `BlobFile`, which reads it when it is
                asked for; ``bytes``; or ``descriptions``, where it is.
            **arrow_options: Arguments of ``pyarrow.Table.to_pandas``.

        Raises:
            InvalidInputError: Another mode.
        """
        if blob_mode not in BLOB_MODES:
            raise InvalidInputError(f"'blob_mode' must be one of {', '.join(BLOB_MODES)}, not {blob_mode!r}")
        if blob_mode == "lazy":
            blobs = self._blob_columns()
            if blobs:
                return self._lazy_frame(blobs, arrow_options)
        query = self._plan("all_binary") if blob_mode == "bytes" else self._query
        scanner = LanceScanner(self._snapshot, self._files, self._fragments, query, self._plan)
        return scanner.to_table().to_pandas(**arrow_options)

    def _blob_columns(self) -> dict[str, list[tuple[tuple[str, ...], Field]]]:
        """Return the columns of the result that hold blobs, and where in them."""
        schema = self._snapshot.manifest.schema
        sources = {name: name for name in self.schema.names}
        if self._query.outputs is not None:
            sources = {output.name: output.source for output in self._query.outputs if output.expression is None}
        columns = {
            name: blob_leaves(schema, source) for name, source in sources.items() if source not in SYSTEM_COLUMNS
        }
        return {name: leaves for name, leaves in columns.items() if leaves}

    def _lazy_frame(
        self, columns: Mapping[str, Sequence[tuple[tuple[str, ...], Field]]], arrow_options: Mapping[str, Any]
    ) -> Any:
        query = self._plan("blobs_descriptions", adds_addresses=True)
        table = LanceScanner(self._snapshot, self._files, self._fragments, query, self._plan).to_table()
        addresses = table[ROW_ADDRESS].to_numpy()
        shown = table.select(self.schema.names)
        for name, leaves in columns.items():
            if leaves[0][0] == ():  # the blobs themselves: Arrow need not make dicts of their descriptions
                shown = shown.set_column(shown.schema.get_field_index(name), name, pa.nulls(len(shown)))
        frame = shown.to_pandas(**arrow_options)
        for name, leaves in columns.items():
            values = frame[name].tolist()
            for path, leaf in leaves:
                files = self._blob_files(table[name], path, leaf, addresses)
                values = [_placed(value, path, file) for value, file in zip(values, files, strict=True)]
            objects = np.empty(len(values), object)
            objects[:] = values
            frame[name] = objects
        return frame

    def _blob_files(
        self, column: pa.ChunkedArray, path: Sequence[str], leaf: Field, addresses: npt.NDArray[np.uint64]
    ) -> list[BlobFile | None]:
        descriptions = column.combine_chunks()
        for name in path:
            descriptions = descriptions.field(name)
        rows = described_blobs(self._snapshot, self._files, leaf, descriptions, addresses)
        return [None if row is None or row.location is None else BlobFile(row.sources, row.location) for row in rows]

    def head(self, num_rows: int) -> pa.Table:
        """Return the first rows of the result."""
        batches: list[pa.RecordBatch] = []
        for batch in self.to_batches():
            batches.append(batch.slice(0, num_rows))
            num_rows -= batches[-1].num_rows
            if num_rows <= 0:
                break
        return pa.Table.from_batches(batches, schema=self.schema)

    def count_rows(self) -> int:
        """Count the rows of the result; values are read only if there is a filter."""
        query = self._query
        if query.include_deleted_rows or query.ranking is not None:
            return sum(batch.num_rows for batch in self.to_batches())
        if query.plan.predicate is None:
            count = sum(fragment.num_rows for fragment in self._fragments)
        else:
            count = count_all_matching(self._files, self._fragments, query.plan)
        count = max(0, count - query.offset)
        return count if query.limit is None else min(count, query.limit)

    def analyze_plan(self, count_rows: bool = False) -> str:
        """Read it all, and tell what was read, what indices saved and how long it took, as text for people.

        Savings are pages, rows and bytes of the filter's columns, against what a scan without indices reads of them.

        Args:
            count_rows: Only count the rows.
        """
        began = perf_counter()
        if count_rows:
            done = f"counted {self.count_rows()} rows"
        else:
            sizes = [(batch.num_rows, batch.nbytes) for batch in self.to_batches()]
            rows, num_bytes = (sum(column) for column in zip((0, 0), *sizes, strict=True))
            done = f"output_rows={rows}, output_batches={len(sizes)}, output_bytes={num_bytes}"
        elapsed = f"elapsed={(perf_counter() - began) * 1000:.1f} ms"
        return "\n".join([self.explain_plan(verbose=True), *self._savings(), f"  {done}, {elapsed}"])

    def _savings(self) -> list[str]:
        """Return what indices saved, as lines of text."""
        from lance_core.scan.savings import measure_savings  # noqa: PLC0415 rarely needed

        plan = self._query.plan
        if plan.index_answer is None:
            return []
        savings = measure_savings(self._files, self._fragments, plan, plan.index_answer)
        return [] if savings is None else [f"  index: {savings.text}"]

    def explain_plan(self, verbose: bool = False) -> str:
        """Describe the plan of the scan as text, with the indices that it uses and the rows that they leave.

        Args:
            verbose: Name the expressions too.
        """
        query, plan = self._query, self._query.plan
        lines = [f"LanceScan: {self._snapshot.store.uri} version {self._snapshot.version}"]
        lines.append(f"  fragments: {len(self._fragments)}, rows read at a time: {plan.batch_size}")
        if plan.predicate is not None:
            lines.append(f"  filter: {plan.predicate.text}, reading {list(plan.filter_projection.names)} first")
            lines.append(f"  then, where it matches: {list(plan.rest.names)}")
        else:
            lines.append(f"  columns: {list(plan.projection.names)}")
        computed = [output for output in query.outputs or () if output.expression is not None] if verbose else []
        lines += [
            f"  computed: {output.name} = {output.expression.text}"
            for output in computed
            if output.expression is not None
        ]
        lines += self._index_lines(plan)
        if query.ranking is not None:
            lines.append(f"  search: {query.ranking.text}")
        if query.order:
            keys = ", ".join(
                f"{ordering.column_name} {'asc' if ordering.ascending else 'desc'}" for ordering in query.order
            )
            lines.append(f"  order by: {keys}" + ("" if query.limit is None else ", keeping the first rows only"))
        if query.limit is not None or query.offset:
            lines.append(f"  limit: {query.limit}, offset: {query.offset}")
        lines.append(f"  result: {', '.join(query.schema.names)}")
        return "\n".join(lines)

    def _index_lines(self, plan: ScanPlan) -> list[str]:
        """Return which indices the scan uses and what they leave of the rows, as lines of text."""
        if plan.predicate is None:
            return []
        if plan.index_answer is None:
            return ["  no index is used"]
        kinds = {index.name: index_kind(index) for index in self._snapshot.manifest.indices}
        used = ", ".join(f"{name} {kinds[name]}" for name in plan.index_names)
        return [f"  index: {', '.join(plan.index_names)}, {self._indexed_rows(plan)}", f"  index kinds: {used}"]

    def _indexed_rows(self, plan: ScanPlan) -> str:
        """Return what indices leave of the rows, as text."""
        answer = plan.index_answer
        assert answer is not None  # noqa: S101 for the type checker: callers have one
        answers = [answer.of_fragment(fragment.id, fragment.physical_rows) for fragment in self._fragments]
        candidates = sum(fragment.num_candidates for fragment in answers)
        total = sum(fragment.physical_rows for fragment in self._fragments)
        verb = "match" if all(fragment.is_decided for fragment in answers) else "may match"
        return f"{candidates:,} of {total:,} rows {verb}"


@with_options(ScanOptions)
def make_scanner(
    snapshot: Snapshot,
    files: OpenFiles,
    fragments: Sequence[Fragment],
    *,
    columns: Sequence[str] | Mapping[str, str] | None = None,
    filter: str | Expression | None = None,  # noqa: A002 the name in pylance
    limit: int | None = None,
    offset: int | None = None,
    **options: Unpack[ScanOptions],
) -> LanceScanner:
    """Return a scanner over fragments; arguments as of `LanceDataset.scanner`.

    Options that are not looked at here make no difference to the rows and their order.
    """
    refuse_given("scanner", **{name: options.get(name) for name in _REFUSED})
    batch_size, batch_size_bytes = options.get("batch_size"), options.get("batch_size_bytes")
    nearest, full_text_query = options.get("nearest"), options.get("full_text_query")
    include_deleted_rows, prefilter = bool(options.get("include_deleted_rows")), options.get("prefilter")
    uses_index = options.get("use_scalar_index") is not False
    check_window(limit, offset, batch_size)
    if batch_size_bytes is not None and batch_size_bytes < 1:
        raise InvalidInputError(f"'batch_size_bytes' must be at least 1, not {batch_size_bytes}")
    columns = _checked_columns(columns)

    def rank() -> Ranking | None:
        if include_deleted_rows and (nearest is not None or full_text_query is not None):
            raise InvalidInputError("a search cannot include deleted rows")
        return _ranking(
            snapshot.manifest,
            nearest,
            full_text_query,
            plan_prefilter,
            count=None if limit is None else limit + (offset or 0),
            only_index=bool(options.get("fast_search")),
        )

    def plan_prefilter() -> ScanPlan | None:
        if not prefilter or filter is None:
            return None
        return plan_indexed(plan_filter(snapshot.manifest.schema, filter))

    def plan_indexed(scan: ScanPlan) -> ScanPlan:
        scan = with_row_starts(scan, snapshot.manifest)
        return with_index_answer(scan, snapshot.manifest, files) if uses_index else scan

    def plan(handling: str | None, *, adds_addresses: bool = False) -> Query:
        with naming(snapshot.store):
            ranking = rank()
            query = plan_query(
                snapshot.manifest.schema,
                columns=columns,
                filter=None if ranking is not None and prefilter else filter,
                order=_orderings(options.get("order_by")),
                limit=limit,
                offset=offset or 0,
                batch_size=batch_size,
                with_row_id=bool(options.get("with_row_id")),
                with_row_address=bool(options.get("with_row_address")) or adds_addresses,
                include_deleted_rows=include_deleted_rows,
                strict_batch_size=bool(options.get("strict_batch_size")),
                batch_size_bytes=batch_size_bytes,
                make_plan=partial(plan_scan, blob_view=blob_view(handling)),
                ranking=ranking,
            )
            scan = with_row_starts(query.plan, snapshot.manifest)
            if uses_index and not include_deleted_rows and ranking is None:
                scan = with_index_answer(scan, snapshot.manifest, files)
            return query if scan is query.plan else replace(query, plan=scan)

    return LanceScanner(snapshot, files, fragments, plan(options.get("blob_handling")), plan)


def _checked_columns(columns: Sequence[str] | Mapping[str, str] | None) -> Sequence[str] | Mapping[str, str] | None:
    if isinstance(columns, str):
        raise InvalidInputError("'columns' must be a list of names, or a dict of names and SQL expressions")
    if not isinstance(columns, Mapping):
        return columns if columns is None else names_of(columns, "columns")
    names_of(columns, "columns")
    for name, expression in columns.items():
        if not isinstance(expression, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInputError(f"'columns' must give SQL text for {name!r}, not {expression!r}")
    return columns


def _ranking(
    manifest: Manifest,
    nearest: Mapping[str, Any] | MinHashQuery | None,
    full_text_query: Any,
    plan_prefilter: Callable[[], ScanPlan | None],
    *,
    count: int | None,
    only_index: bool,
) -> Ranking | None:
    """Return the search that was asked for, if any.

    Args:
        manifest: The version.
        nearest: As in `LanceDataset.scanner`.
        full_text_query: Likewise.
        plan_prefilter: Makes the plan that asks which rows to search; None for all rows.
        count: Rows at most; None for all.
        only_index: Leave out rows that no index covers.
    """
    if nearest is not None and full_text_query is not None:
        raise InvalidInputError("give 'nearest' or 'full_text_query', not both; reciprocal_rank_fusion joins results")
    if nearest is not None:
        from lance_core.index.text.query import MinHashQuery  # noqa: PLC0415 rarely needed

        if isinstance(nearest, MinHashQuery):
            from lance_core.scan.search.duplicates import DuplicateRanking as Duplicates  # noqa: PLC0415 rarely needed

            plan = plan_prefilter()
            return Duplicates(manifest=manifest, query=nearest, prefilter=plan, count=count, only_index=only_index)
        from lance_core.scan.search.vector_ranking import nearest_ranking  # noqa: PLC0415 rarely needed

        return nearest_ranking(manifest, nearest, plan_prefilter(), only_index=only_index)
    if full_text_query is not None:
        from lance_core.scan.search.text_ranking import text_ranking  # noqa: PLC0415 rarely needed

        return text_ranking(manifest, full_text_query, plan_prefilter(), count=count, only_index=only_index)
    return None


_SCAN_ARGUMENTS = frozenset({"columns", "filter", "limit", "offset", *ScanOptions.__annotations__})


def check_default_options(options: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the ``default_scan_options`` of a dataset.

    Raises:
        InvalidInputError: One that scans do not have.
    """
    if not options:
        return None
    unknown = sorted(set(options) - _SCAN_ARGUMENTS)
    if unknown:
        raise InvalidInputError(f"unknown scan option in 'default_scan_options': {', '.join(map(repr, unknown))}")
    return dict(options)


def _placed(value: Any, path: Sequence[str], file: BlobFile | None) -> Any:
    """Return a value with a file in place of the description at a path of names."""
    if not path:
        return file
    if value is not None:
        value[path[0]] = _placed(value[path[0]], path[1:], file)
    return value


def _orderings(order_by: Iterable[ColumnOrdering | str] | None) -> list[ColumnOrdering]:
    orderings = () if order_by is None else order_by
    if isinstance(orderings, str) or not isinstance(orderings, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInputError(f"'order_by' must be a list of names or of ColumnOrdering, not {order_by!r}")
    return [_ordering(ordering) for ordering in orderings]


def _ordering(ordering: ColumnOrdering | str) -> ColumnOrdering:
    if isinstance(ordering, str):
        return ColumnOrdering(ordering)
    if not hasattr(ordering, "column_name"):
        raise InvalidInputError(f"'order_by' must have names or ColumnOrdering, not {ordering!r}")
    return ColumnOrdering(ordering.column_name, ordering.ascending, ordering.nulls_first)
