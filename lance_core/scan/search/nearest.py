"""Searches for the nearest vectors: what is asked for, checked against the schema.

How the rows are found is in `lance_core.scan.search.vector_ranking`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lance_core.common.frozen import frozen
from lance_core.common.hints import close_names
from lance_core.errors import InvalidInputError
from lance_core.index.column import column_to_index
from lance_core.index.vector.distances import (
    check_metric,
    default_metric,
    is_multivector,
    is_vector,
    metric_named,
)
from lance_core.index.vector.segment import Probes
from lance_core.index.vector.top_rows import TopRows

if TYPE_CHECKING:
    from lance_core.format.schema import Schema
    from lance_core.index.column import IndexedColumn
    from lance_core.index.vector.distances import Vectors

DEFAULT_K = 10
_OPTIONS = frozenset({
    "column", "q", "k", "metric", "nprobes", "minimum_nprobes", "maximum_nprobes", "refine_factor", "use_index", "ef",
    "query_parallelism", "approx_mode", "distance_range", "search_effort",
})  # fmt: skip
_APPROX_MODES = ("fast", "normal", "accurate")


@frozen(kw_only=True)
class Nearest:
    """A search for the nearest vectors, checked against a schema.

    Attributes:
        column: The column of vectors, or of lists of vectors.
        queries: Shape (queries, dimensions), of the column's type; for lists of vectors one query of several vectors.
        is_batch: There are several queries, each with rows of its own.
        is_multivector: The column holds lists of vectors.
        k: Rows to find for each query.
        metric: Name of the metric; None for that of the index, or the default.
        lower: Smallest distance of a row.
        upper: Distance from which on rows are left out.
        probes: Partitions of an index to search.
        refine_factor: Find so many times as many rows in an index, and compare their vectors; None to take what the
            index finds.
        use_index: If false, all vectors are compared.
        only_index: Leave out rows that no index covers.
    """

    column: IndexedColumn
    queries: Vectors
    is_batch: bool
    is_multivector: bool
    k: int
    metric: str | None
    lower: float
    upper: float
    probes: Probes
    refine_factor: int | None
    use_index: bool
    only_index: bool = False

    @property
    def exact_metric(self) -> str:
        """The metric where no index has one."""
        kind = self.column.type.value_type
        return self.metric or default_metric(kind.value_type if self.is_multivector else kind)

    def top(self, factor: int = 1, *, has_range: bool = True) -> TopRows:
        """Return a collection for the nearest rows.

        Args:
            factor: Keep so many times as many rows as wanted.
            has_range: Keep only rows in the range of distances.
        """
        if not has_range:
            return TopRows(self.num_queries, self.k * factor)
        return TopRows(self.num_queries, self.k * factor, lower=self.lower, upper=self.upper)

    @property
    def num_queries(self) -> int:
        """Number of queries that have rows of their own."""
        return len(self.queries) if self.is_batch else 1


def parse_nearest(schema: Schema, nearest: Mapping[str, Any], *, only_index: bool = False) -> Nearest:
    """Check what is asked for.

    Args:
        schema: Schema of the table.
        nearest: As in `LanceDataset.scanner`.
        only_index: Leave out rows that no index covers.

    Raises:
        InvalidInputError: An unknown option, a column without vectors, or a query that does not fit it.
    """
    if not isinstance(nearest, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInputError(
            f"'nearest' must be a dict {{'column': ..., 'q': ..., 'k': ...}}, not {type(nearest).__name__}"
        )
    unknown = sorted(set(nearest) - _OPTIONS, key=str)
    if unknown:
        hint = ", ".join(close_names(str(unknown[0]), sorted(_OPTIONS), n=3))
        raise InvalidInputError(f"'nearest' has no option {unknown[0]!r}; did you mean {hint}?")
    for name in ("column", "q"):
        if nearest.get(name) is None:
            raise InvalidInputError(f"'nearest' needs {name!r}: {{'column': ..., 'q': ..., 'k': ...}}")
    column = column_to_index(schema, str(nearest["column"]))
    kind = column.type
    has_lists = is_multivector(kind)
    if not has_lists and not is_vector(kind):
        raise InvalidInputError(
            f"column {column.path!r} of type {kind} holds no vectors; 'nearest' searches fixed-size lists of float16, "
            "float32, float64 or uint8, and lists of those of floats"
        )
    vector = kind.value_type if has_lists else kind
    queries, is_batch = _queries(nearest["q"], vector)
    metric = None if nearest.get("metric") is None else metric_named(nearest["metric"])
    if metric is not None:
        check_metric(metric, vector.value_type)
    lower, upper = _range(nearest.get("distance_range"))
    refine_factor = nearest.get("refine_factor")
    return Nearest(
        column=column,
        queries=queries,
        is_batch=is_batch and not has_lists,
        is_multivector=has_lists,
        k=_positive("k", nearest.get("k"), DEFAULT_K),
        metric=metric,
        lower=lower,
        upper=upper,
        probes=_probes(nearest),
        refine_factor=None if refine_factor is None else _positive("refine_factor", refine_factor, 1),
        use_index=nearest.get("use_index") is not False,
        only_index=only_index,
    )


def _queries(given: Any, kind: pa.DataType) -> tuple[Vectors, bool]:
    """Return the query vectors, and whether they were given as a list of vectors."""
    if isinstance(given, pa.Scalar):
        given = given.as_py()
    if isinstance(given, (pa.Array, pa.ChunkedArray)):
        given = given.to_pylist() if pa.types.is_nested(given.type) else given.to_numpy(zero_copy_only=False)
    if isinstance(given, (bytes, bytearray)):
        given = list(given)
    try:
        vectors = np.asarray(given, np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"'q' must be a vector of numbers, or a list of such: {error}") from error
    if vectors.ndim not in {1, 2} or not vectors.size:
        raise InvalidInputError(f"'q' must be a vector or a list of vectors, not an array of shape {vectors.shape}")
    if vectors.shape[-1] != kind.list_size:
        raise InvalidInputError(f"'q' has {vectors.shape[-1]} dimensions, the column's vectors {kind.list_size}")
    if pa.types.is_integer(kind.value_type) and ((vectors < 0) | (vectors > np.iinfo(np.uint8).max)).any():
        raise InvalidInputError("'q' must have numbers from 0 to 255, as the column's vectors of uint8")
    with np.errstate(invalid="ignore", over="ignore"):
        return np.atleast_2d(vectors).astype(kind.value_type.to_pandas_dtype()), vectors.ndim == 2


def _positive(name: str, value: Any, default: int) -> int:
    if value is None:
        return default
    if isinstance(value, (bool, float)) or not isinstance(value, (int, np.integer)) or value < 1:
        raise InvalidInputError(f"{name!r} must be a whole number of at least 1, not {value!r}")
    return int(value)


def _range(given: Any) -> tuple[float, float]:
    if given is None:
        return -np.inf, np.inf
    if not isinstance(given, (tuple, list)) or len(given) != 2:
        raise InvalidInputError(f"'distance_range' must be a pair (lower, upper), not {given!r}")
    try:
        lower, upper = (None if bound is None else float(bound) for bound in given)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"'distance_range' must be a pair of numbers or None, not {given!r}") from error
    return -np.inf if lower is None else lower, np.inf if upper is None else upper


def _probes(nearest: Mapping[str, Any]) -> Probes:
    names = ("nprobes", "minimum_nprobes", "maximum_nprobes", "ef")
    checked = {name: _positive(name, value, 1) for name in names if (value := nearest.get(name)) is not None}
    mode = nearest.get("approx_mode")
    if mode is not None and mode not in _APPROX_MODES:
        raise InvalidInputError(f"'approx_mode' must be one of {', '.join(_APPROX_MODES)}, not {mode!r}")
    parallelism = nearest.get("query_parallelism")
    if parallelism is not None and (not isinstance(parallelism, int) or parallelism < -1):
        raise InvalidInputError(f"'query_parallelism' must be at least -1, not {parallelism!r}")
    effort = nearest.get("search_effort")
    if effort is not None and not 0 <= effort <= 1:
        raise InvalidInputError(f"'search_effort' must be from 0 to 1, not {effort!r}")
    both = checked.get("nprobes") if effort is None else None
    minimum = checked.get("minimum_nprobes", both or 1)
    maximum = checked.get("maximum_nprobes", both)
    if maximum is not None and minimum > maximum:
        raise InvalidInputError(f"'minimum_nprobes' of {minimum} is more than 'maximum_nprobes' of {maximum}")
    finds_all = nearest.get("distance_range") is not None and effort is None
    return Probes(minimum=minimum, maximum=maximum, effort=1.0 if finds_all else 0.5 if effort is None else effort)
