"""Searches that say which rows are read and in which order, and that add columns of their own to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from lance_core.common.frozen import frozen
from lance_core.errors import InvalidInputError
from lance_core.format.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from lance_core.format.table.fragment import Fragment
    from lance_core.scan.open_files import OpenFiles


@frozen(kw_only=True)
class RankedRows:
    """Rows that a search found, the best first.

    Attributes:
        addresses: Shape (n,), row addresses; a row may come more than once.
        columns: Columns that the search adds, by name, each of n values.
    """

    addresses: npt.NDArray[np.uint64]
    columns: Mapping[str, pa.Array]


class Ranking(Protocol):
    """A search, ready to run."""

    @property
    def leading(self) -> Sequence[pa.Field]:
        """Columns that it adds before all others."""
        ...

    @property
    def trailing(self) -> Sequence[pa.Field]:
        """Columns that it adds behind those of the table, where the caller does not name them."""
        ...

    @property
    def text(self) -> str:
        """Description of the search, for explanations of the plan."""
        ...

    def rank(self, files: OpenFiles, fragments: Sequence[Fragment]) -> RankedRows:
        """Find the rows.

        Args:
            files: The dataset's open files.
            fragments: Where to search.
        """
        ...


def ranked_schema(schema: Schema, ranking: Ranking) -> Schema:
    """Return the schema of a table with the columns that a search adds; their fields have ids below 0.

    Raises:
        InvalidInputError: The table has a column of such a name.
    """
    import pyarrow as pa  # noqa: PLC0415 the type checker knows it already

    added = [*ranking.leading, *ranking.trailing]
    for field in added:
        if field.name in schema.names:
            raise InvalidInputError(f"the table has a column {field.name!r}, which the search would add; rename it")
    return Schema((*schema.fields, *Schema.from_arrow(pa.schema(added)).fields), schema.metadata)


def ranked_columns(
    schema: Schema, columns: Sequence[str] | Mapping[str, str] | None, ranking: Ranking
) -> Sequence[str] | Mapping[str, str]:
    """Return the columns of the result of a search: those that were asked for, and those that it adds.

    Args:
        schema: Schema of the table.
        columns: As in `lance_core.scan.query.plan_query`.
        ranking: The search.
    """
    names = schema.names if columns is None else columns
    leading = [field.name for field in ranking.leading if field.name not in names]
    trailing = [field.name for field in ranking.trailing if field.name not in names]
    if isinstance(columns, dict):
        return {**{name: name for name in leading}, **columns, **{name: name for name in trailing}}
    return [*leading, *names, *trailing]
