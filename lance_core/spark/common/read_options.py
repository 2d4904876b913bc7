"""Options of reads: what ``spark.read`` and ``spark.readStream`` understand for ``format("lance")``."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

from lance_core.errors import InvalidInputError
from lance_core.format.blobs import blob_view

if TYPE_CHECKING:
    from collections.abc import Mapping


PLACES_IN_TIME = ("version", "tag", "timestamp")
_ONLY_CHANGES = ("ending_version",)
_ONLY_STREAMS = (
    "starting_timestamp",
    "max_rows_per_batch",
    "max_bytes_per_batch",
    "skip_change_commits",
    "ignore_deletes",
    "ignore_changes",
)
_NOT_IN_STREAMS = (*PLACES_IN_TIME, "limit", "read_change_feed", "ending_version")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Options of ``spark.read.format("lance")``; all but ``path`` have defaults.

    In classic sessions, the planner rule adds the columns, conditions and limits of each query; see
    `lance_core.spark.planner`. In others, ``columns`` and ``filter`` are the way to read less.

    Attributes:
        path: Address of the dataset.
        version: Version to read. If neither this nor ``tag`` nor ``timestamp`` is given, each query reads the version
            that is the newest when Spark plans it; see `lance_core.spark.planner`.
        tag: Name of a tag to read instead of a version.
        branch: Branch that ``version`` and ``timestamp`` are about; the main branch if not given.
        timestamp: The newest version committed up to this point in time, with its offset from UTC.
        columns: JSON list of columns to read; all if not given.
        filter: SQL condition that is evaluated while reading; its columns need not be in ``columns``.
        limit: Rows at most; with a filter, one task looks for them.
        pushdown: Let the planner rule read only what each query needs.
        batch_size: Most rows in one record batch; by default 16,384, and up to eight times as many of narrow columns.
        split_bytes: Bytes on disk that one partition should hold.
        split_rows: Rows that one partition should hold.
        min_partitions: Partitions to aim at for tables that are large enough to be worth it.
        with_row_id: Add the column ``_rowid``.
        with_row_address: Add the column ``_rowaddr``.
        with_row_versions: Add ``_row_created_at_version`` and ``_row_last_updated_at_version``.
        blob_handling: ``blobs_descriptions`` (where blobs are, the default) or ``all_binary`` (their bytes).
        truncate_nanoseconds: Read times with nanoseconds as microseconds; else those that lose digits are an error.
        storage_options: JSON object with options of the store.
        base_store_params: JSON object that has such an object for each other place that the table may name.
        read_change_feed: Read the changes that versions made instead of rows.
        starting_version: Of changes and streams: the first version whose changes are read; a stream also takes a tag,
            ``earliest`` or ``latest`` (what comes after now).
        ending_version: The last version whose changes are read.
        starting_timestamp: A stream begins with the first version committed then or later.
        max_rows_per_batch: Rows that a stream reads in one micro-batch.
        max_bytes_per_batch: Bytes on disk that a stream reads in one micro-batch, roughly.
        skip_change_commits: A stream leaves out versions that change or delete rows.
        ignore_deletes: A stream leaves out versions that only delete rows.
        ignore_changes: A stream reads rows that were changed as new ones.
    """

    path: str
    version: int | None = None
    tag: str | None = None
    branch: str | None = None
    timestamp: str | None = None
    columns: tuple[str, ...] | None = None
    filter: str | None = None
    limit: int | None = None
    pushdown: bool = True
    batch_size: int | None = None
    split_bytes: int = 128 << 20
    split_rows: int = 1 << 20
    min_partitions: int = 1
    with_row_id: bool = False
    with_row_address: bool = False
    with_row_versions: bool = False
    blob_handling: str | None = None
    truncate_nanoseconds: bool = False
    storage_options: Mapping[str, str] | None = field(default=None, repr=False)
    base_store_params: Mapping[str, Mapping[str, str]] | None = field(default=None, repr=False)
    read_change_feed: bool = False
    starting_version: str | None = None
    ending_version: int | None = None
    starting_timestamp: str | None = None
    max_rows_per_batch: int | None = None
    max_bytes_per_batch: int | None = None
    skip_change_commits: bool = False
    ignore_deletes: bool = False
    ignore_changes: bool = False

    def __post_init__(self) -> None:
        given = [name for name in PLACES_IN_TIME if getattr(self, name) is not None]
        if len(given) > 1:
            raise InvalidInputError(f"The options {', '.join(map(repr, given))} exclude each other. Give only one.")
        if self.tag is not None and self.branch is not None:
            raise InvalidInputError("Specify either 'tag' or 'branch', not both.")
        blob_view(self.blob_handling)

    def check_batch(self) -> None:
        """Refuse options that mean nothing for this kind of batch read.

        Raises:
            InvalidInputError: Names them.
        """
        wrong = [name for name in _ONLY_STREAMS if self._is_given(name)]
        if not self.read_change_feed:
            wrong += [name for name in (*_ONLY_CHANGES, "starting_version") if self._is_given(name)]
        else:
            wrong += [name for name in (*PLACES_IN_TIME, "limit") if self._is_given(name)]
        if wrong:
            kind = "a read of changes" if self.read_change_feed else "a read that is neither a stream nor of changes"
            raise InvalidInputError(f"The options {', '.join(map(repr, wrong))} do not apply to {kind}.")

    def check_stream(self) -> None:
        """Refuse options that mean nothing for a stream.

        Raises:
            InvalidInputError: Names them.
        """
        wrong = [name for name in _NOT_IN_STREAMS if self._is_given(name)]
        if wrong:
            raise InvalidInputError(
                f"The options {', '.join(map(repr, wrong))} do not apply to a stream. Use 'starting_version' "
                "or 'starting_timestamp'."
            )
        if self.starting_version is not None and self.starting_timestamp is not None:
            raise InvalidInputError("Specify either 'starting_version' or 'starting_timestamp', not both.")

    def _is_given(self, name: str) -> bool:
        (default,) = (field.default for field in fields(self) if field.name == name)
        return getattr(self, name) != default
