"""What writing needs to know of a generation of the file format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from lance_core.encoding.values import Bytes

Put: TypeAlias = "Callable[[bytes | Bytes], tuple[int, int]]"
"""Writes a buffer where one may begin; its position in the file and its size."""


class FieldWriter(Protocol):
    """One top-level field of a file being written.

    Attributes:
        field_ids: Fields that have a column, in the order of the columns.
    """

    @property
    def field_ids(self) -> tuple[int, ...]: ...  # noqa: D102 - see above

    def check(self, array: pa.Array, /) -> None:
        """Look for values that the file cannot hold, before any of them is taken.

        Raises:
            InvalidInputError: There are some; the message names the field.
        """
        ...

    def write(self, array: pa.Array, put: Put, /) -> None:
        """Write at least one row as pages."""
        ...

    def finish(self) -> list[bytes]:
        """The metadata of each column."""
        ...
