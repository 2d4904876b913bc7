"""The interface of a table to import: its version, its schema, its partitions, and the rows of some of them."""

from __future__ import annotations

from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from lance_core.common.frozen import frozen
from lance_core.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


@frozen(kw_only=True)
class Partition:
    """Rows of a source that are imported together.

    Attributes:
        condition: The rows, by the columns that the source is partitioned by; None for all rows.
        files: Identities of the files that hold them. Rows can have changed only where these differ.
        num_bytes: Size of those files.
    """

    condition: pc.Expression | None
    files: frozenset[str]
    num_bytes: int


class Source(Protocol):
    """One version of a table of another format."""

    @property
    def address(self) -> str:
        """Format and location, such as ``delta:/data/orders``: what makes it the same table in another version."""
        ...

    @property
    def version(self) -> str:
        """Version in the words of the format."""
        ...

    @property
    def schema(self) -> pa.Schema:
        """Schema of the rows."""
        ...

    @property
    def partitioned_by(self) -> tuple[str, ...]:
        """Rule by which the source is cut into partitions: under the same one, names of partitions mean the same."""
        ...

    def partitions(self) -> dict[str, Partition]:
        """Return the partitions by name, in an order that is the same whenever this version is asked."""
        ...

    def read(self, names: Sequence[str]) -> pa.RecordBatchReader:
        """Return the rows of some partitions, given by name."""
        ...

    def at(self, version: str) -> Source | None:
        """Return another version of the same table; None if the source does not remember it."""
        ...


def equals(values: Iterable[tuple[str, pa.Scalar]]) -> pc.Expression:
    """Return the condition that columns have given values, null among them.

    Args:
        values: Name of a column and pyarrow scalar of its type, for each column.
    """
    terms = [pc.field(name) == value if value.is_valid else pc.field(name).is_null() for name, value in values]
    return reduce(and_, terms)


def any_of(partitions: Sequence[Partition]) -> pc.Expression | None:
    """Return the condition of the rows of several partitions; None for all rows."""
    conditions = [partition.condition for partition in partitions if partition.condition is not None]
    return reduce(or_, conditions) if len(conditions) == len(partitions) else None


def cast_batches(batches: Iterable[pa.RecordBatch], schema: pa.Schema, *, address: str) -> pa.RecordBatchReader:
    """Return batches in another schema of the same columns, one by one.

    Args:
        batches: What a package reads.
        schema: Schema of the result.
        address: The source, for messages.

    Raises:
        InvalidInputError: While they are read: the source cannot be read.
    """

    def cast() -> Iterator[pa.RecordBatch]:
        try:
            for batch in batches:
                yield batch.cast(schema)
        except (OSError, pa.ArrowInvalid) as error:
            raise InvalidInputError(f"{address} cannot be read: {str(error).splitlines()[0]}") from error

    return pa.RecordBatchReader.from_batches(schema, cast())
