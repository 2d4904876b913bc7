"""Indices over a member of JSON documents: segments of other kinds, asked about what a function of SQL returns.

lance_core reads them, and compaction tells them where rows went; it does not build them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lance_core.errors import UnsupportedError
from lance_core.format.index import bitmap_index, btree
from lance_core.format.index.json_index import GETTERS, TYPE_URL, VERSION, decode_details, member_name
from lance_core.format.schema import JSON, Schema
from lance_core.index.column import IndexedColumn
from lance_core.index.protocol import EntrySegment, SegmentContent, UnreadSegment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lance_core.format.table.index_metadata import IndexFields
    from lance_core.index.answer import RowAnswer
    from lance_core.index.files import SegmentFiles
    from lance_core.index.protocol import Int64s, MovableKind, Relocation, Segment, SegmentTarget
    from lance_core.sql.pruning import Question

_TYPES = (pa.int64(), pa.float64(), pa.string(), pa.bool_())
_KEYS = {btree.TYPE_URL: (btree.LOOKUP_FILE, "min"), bitmap_index.BITMAP_TYPE_URL: (bitmap_index.FILE_NAME, "keys")}
"""The file and the column of it that tell the type of the values, by kind."""


class JsonMemberKind:
    """Reads indices over one member of JSON documents.

    Args:
        target: The kind of the files.
        target_url: Name of the message with its details.
        key: Key of the member; None for members inside of others, about which no question can be asked.
        details: The index's own details.
    """

    type_url = TYPE_URL

    def __init__(self, target: MovableKind, target_url: str, key: str | None, details: bytes) -> None:
        self._target = target
        self._type_place = _KEYS[target_url]
        self.key = key
        self._details = details

    def subjects(self, column: IndexedColumn) -> Sequence[str]:
        """Return the names under which questions may be asked; which of them is answered the file tells."""
        if self.key is None or column.leaf.logical_type != JSON:
            return []
        return [member_name(column.path, kind, self.key) for kind in _TYPES]

    def open(self, files: SegmentFiles, column: IndexedColumn) -> Segment:
        """Open a segment."""
        file, name = self._type_place
        kind = files.open(file).schema.to_arrow().field(name).type
        if str(kind) not in GETTERS:
            return UnreadSegment()
        values = Schema.from_arrow(pa.schema([pa.field(column.path, kind)]))
        inner = IndexedColumn(path=column.path, projection=values, leaf=values.fields[0])
        key = self.key or ""
        segment, subject = self._target.open(files, inner), member_name(column.path, kind, key)
        if isinstance(segment, EntrySegment):
            return _MemberEntries(segment, subject, inner, key)
        return _Member(segment, subject, inner, key)

    def rewrite(self, target: SegmentTarget, segments: Sequence[tuple[Segment, Relocation]]) -> SegmentContent:
        """Write one segment from others, all over values of one type.

        Raises:
            UnsupportedError: A segment that cannot be read, or values of several types.
        """
        members = [(segment, relocation) for segment, relocation in segments if isinstance(segment, _Member)]
        columns = {str(member.values.type): member.values for member, _ in members}
        if len(members) < len(segments) or len(columns) != 1:
            raise UnsupportedError("segments over members of JSON documents that differ in the types of their values")
        (values,) = columns.values()
        inner = replace(target, column=values)
        self._target.rewrite(inner, [(member.segment, relocation) for member, relocation in members])
        return SegmentContent(index_version=VERSION, details=self._details)


class _Member:
    """A segment that answers questions about a member.

    Args:
        segment: The segment over its values.
        subject: Name under which questions are asked.
        values: The values, as if they were a column.
        key: Key of the member.
    """

    def __init__(self, segment: Segment, subject: str, values: IndexedColumn, key: str) -> None:
        self.segment = segment
        self.subject = subject
        self.values = values
        self._key = key

    @property
    def options(self) -> Mapping[str, Any]:
        """Options of the segment."""
        return self.segment.options

    @property
    def statistics(self) -> Mapping[str, Any]:
        """Numbers about the segment for users."""
        return self.segment.statistics

    def answer(self, question: Question, *, tells_null: bool) -> RowAnswer | None:
        """Answer a question about the member; None for values of another type."""
        return self.segment.answer(question, tells_null=tells_null) if question.column == self.subject else None

    def values_of(self, column: pa.Array) -> pa.Array:
        """Return the member of some documents."""
        from lance_core.sql.json_functions import member_values  # noqa: PLC0415 rarely needed

        return member_values(column, self.values.type, self._key)


class _MemberEntries(_Member):
    """As `_Member`, over a segment with an entry for each row.

    Args:
        segment: The segment over its values.
        subject: Name under which questions are asked.
        values: The values, as if they were a column.
        key: Key of the member.
    """

    def __init__(self, segment: EntrySegment, subject: str, values: IndexedColumn, key: str) -> None:
        super().__init__(segment, subject, values, key)
        self._entries = segment

    def entries(self) -> Iterator[tuple[pa.Array, Int64s]]:
        """Read all values and the row of each."""
        return self._entries.entries()

    def expected_entries(self, values: pa.Array, rows: Int64s) -> Iterator[tuple[pa.Array, Int64s]]:
        """Return the entries that some rows must have; ``values`` are those of the member."""
        return self._entries.expected_entries(values, rows)


def json_member_kind(fields: IndexFields, kinds: Mapping[str, MovableKind]) -> JsonMemberKind | None:
    """Return what reads an index over a member; None for other indices and kinds.

    Args:
        fields: Its entry.
        kinds: The kinds that may be below, by name of the message with their details.
    """
    if fields.details is None or fields.details[0] != TYPE_URL or fields.index_version != VERSION:
        return None
    details = decode_details(fields.details[1])
    if details is None or details.target_url not in _KEYS:
        return None
    return JsonMemberKind(kinds[details.target_url], details.target_url, details.key, fields.details[1])
