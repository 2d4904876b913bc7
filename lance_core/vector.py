"""Tables of vectors, and how much of them searches find. Names and arguments of `vec_to_table` as in pylance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lance_core.common.unsupported import late_names
from lance_core.errors import InvalidInputError
from lance_core.format.index.vector_index import TYPE_URL, decode_details
from lance_core.format.table.index_metadata import index_fields
from lance_core.index.column import path_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from lance_core.dataset import LanceDataset


def vec_to_table(
    data: Mapping[Any, Sequence[float]] | Sequence[Sequence[float]] | npt.NDArray[Any],
    names: str | Sequence[str] | None = None,
    ndim: int | None = None,
    check_ndim: bool = True,
) -> pa.Table:
    """Make a table of vectors of equal length.

    Args:
        data: An array of shape (vectors, dimensions), a list of vectors, or a dict of id to vector.
        names: Name of the column of vectors, ``"vector"`` if None; for a dict a list of two, ``["id", "vector"]`` if
            None.
        ndim: Dimensions of a vector; those of the first vector if None.
        check_ndim: Compare the length of each vector with ``ndim``.

    Returns:
        A column of type ``fixed_size_list<float32>[ndim]``, for a dict behind one of ids.

    Raises:
        InvalidInputError: No vectors, vectors of other lengths, or another number of names.
    """
    vectors: list[Any] = list(data.values() if isinstance(data, Mapping) else data)
    columns = ["id", "vector"] if isinstance(data, Mapping) else ["vector"]
    if names is not None:
        given = [names] if isinstance(names, str) else list(names)
        if len(given) != len(columns):
            raise InvalidInputError(f"the table has {len(columns)} columns, but 'names' has {given!r}")
        columns = given
    if not vectors or any(np.ndim(vector) != 1 for vector in vectors):
        raise InvalidInputError("'vec_to_table' takes one or more vectors, each a list or array of numbers")
    size = len(vectors[0]) if ndim is None else ndim
    if check_ndim:
        for number, vector in enumerate(vectors):
            if len(vector) != size:
                raise InvalidInputError(f"vector {number} has {len(vector)} dimensions, expected {size}")
    values = np.concatenate([np.asarray(vector, np.float32) for vector in vectors])
    try:
        column = pa.FixedSizeListArray.from_arrays(values, size)
    except pa.ArrowInvalid as error:
        raise InvalidInputError(f"cannot split {len(values)} numbers into vectors of {size} dimensions") from error
    if not isinstance(data, Mapping):
        return pa.table([column], columns)
    return pa.table([pa.array(list(data)), column], columns)


def measure_recall(
    dataset: LanceDataset,
    column: str,
    *,
    k: int = 10,
    num_queries: int = 50,
    metric: str | None = None,
    nprobes: int | None = None,
    refine_factor: int | None = None,
    seed: int = 0,
) -> float:
    """Measure the share of the nearest rows that a search in the index finds. Not in pylance.

    Queries are vectors of the table, at random; the nearest rows are found by comparing all vectors.

    Args:
        dataset: The table.
        column: The column of vectors.
        k: Rows to find for each query.
        num_queries: Vectors to search for.
        metric: As in searches; that of the index if None.
        nprobes: As in searches.
        refine_factor: As in searches.
        seed: Seed of the random choice of queries.

    Returns:
        From 0 to 1; 1 for a table without vectors.

    Raises:
        InvalidInputError: The column holds no vectors.
    """
    total = dataset.count_rows()
    positions = np.sort(np.random.default_rng(seed).choice(total, min(total, num_queries), replace=False))
    vectors = dataset.take(positions.tolist(), columns=[column])[column].combine_chunks().drop_null()
    if not len(vectors):
        return 1.0
    chosen = metric or _index_metric(dataset, column)
    asked: dict[str, Any] = {"column": column, "q": vectors.to_pylist(), "k": k, "metric": chosen}
    exact = _pairs(dataset, {**asked, "use_index": False})
    indexed = _pairs(dataset, {**asked, "nprobes": nprobes, "refine_factor": refine_factor})
    return len(exact & indexed) / len(exact) if exact else 1.0


def _index_metric(dataset: LanceDataset, column: str) -> str | None:
    manifest = dataset.snapshot.manifest
    for index in manifest.indices:
        details = index_fields(index).details
        is_vector = details is not None and details[0].lower() == TYPE_URL.lower()
        if details is not None and is_vector and path_of(manifest.schema, index.fields[0]) == column:
            return decode_details(details[1]).metric or None
    return None


def _pairs(dataset: LanceDataset, nearest: Mapping[str, Any]) -> set[tuple[int, int]]:
    rows = dataset.to_table(columns=[], nearest=nearest, with_row_id=True)
    return set(zip(rows["query_index"].to_pylist(), rows["_rowid"].to_pylist(), strict=True))


__getattr__ = late_names(__name__)
