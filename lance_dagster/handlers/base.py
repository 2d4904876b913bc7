"""Protocol between the IO manager and a frame library."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    import lance_core
    from lance_core import CompressionProfile
    from lance_dagster.partitioning.predicate import Predicate

WriteOperation = Literal["create", "append", "overwrite", "replace_where", "merge"]
OutOfPartition = Literal["error", "drop", "allow"]


def store_options(
    storage_options: Mapping[str, str], base_store_params: Mapping[str, Mapping[str, str]]
) -> dict[str, Any]:
    """Settings of the stores, as the functions of lance_core take them."""
    params = {address: dict(options) for address, options in base_store_params.items()}
    return {"storage_options": dict(storage_options) or None, "base_store_params": params or None}


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteRequest:
    """One commit.

    Args:
        uri: The table, or a branch of it.
        operation: What the commit does: ``replace_where`` replaces the rows that ``replaced`` selects; ``merge``
            updates rows that have the same ``merge_keys`` and adds the others.
        target: The columns to store, with their types: those of a column that the frame has are what it is converted
            to, a column that it lacks becomes null (with ``merge`` it keeps its values). None: the frame's own.
        existing: The table as it is; None if it is created or overwritten.
        replaced: SQL text of the rows that the operation is about, in the types of the existing table: those it
            replaces, or among which it looks for rows to update. None for all. Also given with ``create``, for a
            writer that can join a table which somebody else creates meanwhile.
        merge_keys: Columns that tell rows apart; None for the primary key that the table declares.
        compression_profile: Profile of a table that is created or overwritten; None for the one it has.
        unique_keys: With ``create``, the key of the merge that creates the table: no two rows may have the same. None
            for all other commits.
        expected: The run's partitions in the types of the data, or None without partitions.
        out_of_partition: What happens to rows that ``expected`` does not select.
        properties: Transaction properties of the commit.
        token: Identity of the commit.
        idempotency_key: The same if other runs may be making this commit at this moment, so that it has to be looked
            for when the table is opened for writing; else None.
        storage_options: Settings of the object store.
        base_store_params: The same for other places that a table may name, by their address.
    """

    uri: str
    operation: WriteOperation
    target: pa.Schema | None
    existing: lance_core.LanceDataset | None
    replaced: str | None
    merge_keys: tuple[str, ...] | None
    expected: Predicate | None
    out_of_partition: OutOfPartition
    properties: Mapping[str, str]
    token: str
    storage_options: Mapping[str, str] = field(repr=False)
    base_store_params: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    idempotency_key: str | None = None
    unique_keys: tuple[str, ...] | None = None
    compression_profile: CompressionProfile | None = None

    @property
    def options(self) -> dict[str, Any]:
        """Settings of the stores and of a new table, as the functions of lance_core take them."""
        profile = {"compression_profile": self.compression_profile} if self.existing is None else {}
        return {**store_options(self.storage_options, self.base_store_params), **profile}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRequest:
    """One load.

    Args:
        dataset: The table at the version to read; None if there is none yet (then ``is_empty``).
        type: The type to hand out.
        columns: Columns in order, or None for all.
        filter: SQL predicate, or None.
        is_empty: Hand out no rows.
        schema: Columns of the table (before ``columns`` are chosen).
        storage_options: Settings of the object store.
        base_store_params: The same for other places that a table may name, by their address.
        spark_session: Gives the Spark session.
    """

    dataset: lance_core.LanceDataset | None
    type: type
    columns: Sequence[str] | None
    filter: str | None
    is_empty: bool
    schema: pa.Schema
    storage_options: Mapping[str, str] = field(repr=False)
    base_store_params: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    spark_session: Callable[[], Any]

    @property
    def options(self) -> dict[str, Any]:
        """Settings of the stores, as the functions of lance_core take them."""
        return store_options(self.storage_options, self.base_store_params)


class TypeHandler(Protocol):
    """Reads and writes the frames of one library; `lance_dagster.LanceIOManager.type_handlers` makes one known."""

    @property
    def types(self) -> Sequence[str]:
        """Classes it is for, as ``"package.Class"`` (the package's first part); subclasses count too."""
        ...

    def schema(self, obj: Any) -> pa.Schema:
        """Columns of a frame, as Arrow types; nothing is computed or read."""
        ...

    def write(self, obj: Any, request: WriteRequest) -> int:
        """Write a frame in one commit, computing it once; returns the version made."""
        ...

    def load(self, request: ReadRequest) -> Any:
        """Hand out a frame."""
        ...
