"""Methods of `LanceDataset` that know rows by their ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lance_core.change.row_index import RowIndex
from lance_core.delta import DatasetDelta
from lance_core.errors import InvalidInputError
from lance_core.format.extensions import table_with_types
from lance_core.methods.arguments import row_numbers
from lance_core.methods.reading import make_plan
from lance_core.scan.take import take_addresses

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from lance_core.methods.protocols import OpenDataset


def delta(
    dataset: OpenDataset,
    compared_against: int | None = None,
    *,
    begin_version: int | None = None,
    end_version: int | None = None,
) -> DatasetDelta:
    """Changes between two versions.

    Args:
        compared_against: Compare this version of the dataset with that older one.
        begin_version: Or: the version before the first change,
        end_version: and the version that the last change made.

    Raises:
        InvalidInputError: Neither ``compared_against`` nor both of the others.

    Examples:
        >>> table.insert([{"id": 5, "name": "Bonn", "height": 60}])
        >>> table.delta(compared_against=1).get_inserted_rows().read_all()["name"].to_pylist()
        ['Bonn']
    """
    if compared_against is not None:
        return DatasetDelta(dataset, compared_against, dataset.version)
    if begin_version is None or end_version is None:
        raise InvalidInputError(
            "pass either 'compared_against', or both 'begin_version' and 'end_version'", path=dataset.uri
        )
    return DatasetDelta(dataset, begin_version, end_version)


def take_rows(
    dataset: OpenDataset, row_ids: Sequence[int] | pa.Array, columns: Sequence[str] | None = None
) -> pa.Table:
    """Return rows by their ids, as ``_rowid`` tells them: stable ids if the dataset has them, else row addresses.

    Args:
        row_ids: Ids; any order, repeats allowed.
        columns: As in `to_batches`.

    Returns:
        The rows in the order asked for; ids that no row has are left out.

    Raises:
        InvalidInputError: A row address in a fragment that does not exist.
    """
    ids = row_numbers(row_ids, "row_ids").astype(np.uint64)
    plan = make_plan(dataset, columns)
    addresses, has_row = _index(dataset).addresses(ids)
    fragments = dataset.snapshot.manifest.fragments
    return table_with_types(take_addresses(dataset.files, fragments, addresses[has_row], plan))


def _index(dataset: OpenDataset) -> RowIndex:
    """Return the index of the version that the dataset is at; it is kept, because it takes a look at every fragment."""
    manifest = dataset.snapshot.manifest
    if dataset.row_index is None or dataset.row_index.manifest is not manifest:
        dataset.row_index = RowIndex(dataset.files, manifest)
    return dataset.row_index
