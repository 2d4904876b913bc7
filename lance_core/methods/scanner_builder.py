"""Scanners put together step by step. Names and arguments as in pylance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_core.common.unsupported import with_refused

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyarrow.compute import Expression

    from lance_core.index.text.query import MinHashQuery
    from lance_core.scan.ordering import ColumnOrdering


@with_refused
class ScannerBuilder:
    """Puts a scanner together step by step; each step answers the builder.

    Args:
        ds: What to scan: a `LanceDataset` or `LanceFragment`.
    """

    def __init__(self, ds: Any) -> None:
        self.ds = ds
        self._options: dict[str, Any] = {}

    def _with(self, **options: Any) -> ScannerBuilder:
        self._options.update(options)
        return self

    def columns(self, cols: Sequence[str] | Mapping[str, str] | None = None) -> ScannerBuilder:
        """Names, or a dict of names and SQL expressions."""
        return self._with(columns=cols)

    def filter(self, filter: str | Expression) -> ScannerBuilder:  # noqa: A002 the name in pylance
        """SQL text or pyarrow expression."""
        return self._with(filter=filter)

    def limit(self, n: int | None = None) -> ScannerBuilder:
        """Set the maximum number of rows."""
        return self._with(limit=n)

    def offset(self, n: int | None = None) -> ScannerBuilder:
        """Set the number of rows to leave out first."""
        return self._with(offset=n)

    def batch_size(self, batch_size: int) -> ScannerBuilder:
        """Set the number of rows that are read at a time."""
        return self._with(batch_size=batch_size)

    def batch_size_bytes(self, batch_size_bytes: int | None) -> ScannerBuilder:
        """Set the bytes of a batch, roughly."""
        return self._with(batch_size_bytes=batch_size_bytes)

    def strict_batch_size(self, strict_batch_size: bool = False) -> ScannerBuilder:
        """Make all batches but the last have exactly as many rows as asked for."""
        return self._with(strict_batch_size=strict_batch_size)

    def with_row_id(self, with_row_id: bool = True) -> ScannerBuilder:
        """Add ``_rowid``."""
        return self._with(with_row_id=with_row_id)

    def with_row_address(self, with_row_address: bool = True) -> ScannerBuilder:
        """Add ``_rowaddr``."""
        return self._with(with_row_address=with_row_address)

    def include_deleted_rows(self, flag: bool) -> ScannerBuilder:
        """Deleted rows come too, with a null row id."""
        return self._with(include_deleted_rows=flag)

    def order_by(self, orderings: Iterable[ColumnOrdering | str] | None) -> ScannerBuilder:
        """Columns to order by."""
        return self._with(order_by=orderings)

    def blob_handling(self, blob_handling: str | None) -> ScannerBuilder:
        """As in `LanceDataset.scanner`."""
        return self._with(blob_handling=blob_handling)

    def use_scalar_index(self, use_scalar_index: bool = True) -> ScannerBuilder:
        """Use indices."""
        return self._with(use_scalar_index=use_scalar_index)

    def scan_in_order(self, scan_in_order: bool = True) -> ScannerBuilder:
        """Accepted: rows come in the order of the table in any case."""
        return self._with(scan_in_order=scan_in_order)

    def prefilter(self, prefilter: bool) -> ScannerBuilder:
        """The filter says which rows are searched."""
        return self._with(prefilter=prefilter)

    def batch_readahead(self, nbatches: int | None = None) -> ScannerBuilder:
        """Accepted: it would make no difference."""
        return self._with(batch_readahead=nbatches)

    def fragment_readahead(self, nfragments: int | None = None) -> ScannerBuilder:
        """Accepted: it would make no difference."""
        return self._with(fragment_readahead=nfragments)

    def io_buffer_size(self, io_buffer_size: int) -> ScannerBuilder:
        """Accepted: it would make no difference."""
        return self._with(io_buffer_size=io_buffer_size)

    def late_materialization(self, late_materialization: bool | list[str]) -> ScannerBuilder:
        """Accepted: columns of a condition are read first in any case."""
        return self._with(late_materialization=late_materialization)

    def use_stats(self, use_stats: bool = True) -> ScannerBuilder:
        """Accepted: it would make no difference."""
        return self._with(use_stats=use_stats)

    def fast_search(self, flag: bool = True) -> ScannerBuilder:
        """Searches leave out rows that no index covers."""
        return self._with(fast_search=flag)

    def nearest(  # noqa: PLR0917 positional as in pylance
        self,
        column: str,
        q: Any,
        k: int | None = None,
        metric: str | None = None,
        nprobes: int | None = None,
        minimum_nprobes: int | None = None,
        maximum_nprobes: int | None = None,
        refine_factor: int | None = None,
        use_index: bool = True,
        ef: int | None = None,
        query_parallelism: int | None = None,
        approx_mode: str = "normal",
        distance_range: tuple[float | None, float | None] | None = None,
        search_effort: float | None = None,
    ) -> ScannerBuilder:
        """Search the rows whose vectors are nearest to a query; see `LanceDataset.scanner`."""
        given = {
            "column": column,
            "q": q,
            "k": k,
            "metric": metric,
            "nprobes": nprobes,
            "minimum_nprobes": minimum_nprobes,
            "maximum_nprobes": maximum_nprobes,
            "refine_factor": refine_factor,
            "use_index": use_index,
            "ef": ef,
            "query_parallelism": query_parallelism,
            "approx_mode": approx_mode,
            "distance_range": distance_range,
            "search_effort": search_effort,
        }
        return self._with(nearest={name: value for name, value in given.items() if value is not None})

    def minhash_search(self, query: MinHashQuery) -> ScannerBuilder:
        """Search near duplicates of a text; see `LanceDataset.scanner`."""
        return self._with(nearest=query)

    def full_text_search(self, query: Any, columns: list[str] | None = None) -> ScannerBuilder:
        """Search texts: words and the columns to search, or a query of `lance_core.query`."""
        return self._with(full_text_query={"query": query, "columns": columns})

    def apply_defaults(self, default_opts: Mapping[str, Any]) -> ScannerBuilder:
        """Options of `LanceDataset.scanner` that count unless they are set already."""
        self._options = {**default_opts, **self._options}
        return self

    def with_fragments(self, fragments: Iterable[Any] | None) -> ScannerBuilder:
        """Read only these."""
        return self._with(fragments=None if fragments is None else list(fragments))

    def to_scanner(self) -> Any:
        """Return the scanner."""
        return self.ds.scanner(**self._options)
