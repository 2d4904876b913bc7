"""Full-text indices: the kind that finds words and orders rows by how well they match.

It does not answer conditions. `lance_core.scan.search.text_search` asks its segments for the rows of words. The files
are described in `lance_core.format.index.inverted_index`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_core.common.last_made import KeepsLast
from lance_core.errors import InvalidInputError
from lance_core.format.index.inverted_index import METADATA_FILE, TYPE_URL, VERSION, decode_index_metadata, text_options
from lance_core.format.schema import JSON
from lance_core.index.cache import CACHE_BYTES, BoundedCache
from lance_core.index.external_sort import MEMORY_OPTION
from lance_core.index.text.analyzer import holds_text
from lance_core.index.text.inverted_partition import Partition, PostingsCache
from lance_core.index.text.json_analyzer import make_analyzer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lance_core.format.index.inverted_index import IndexLayout, TextOptions
    from lance_core.index.answer import RowAnswer
    from lance_core.index.column import IndexedColumn
    from lance_core.index.files import SegmentFiles
    from lance_core.index.protocol import FragmentColumn, Relocation, Segment, SegmentContent, SegmentTarget
    from lance_core.index.text.analyzer import Analyzer
    from lance_core.sql.pruning import Question

Int64s: TypeAlias = npt.NDArray[np.int64]

DEFAULT_MEMORY = 1 << 30
"""Memory of a build; each time that it is full, a partition is written, which searches look into one by one."""


class InvertedSegment(KeepsLast):
    """One segment of a full-text index; files are read when they are needed.

    Args:
        files: Its files.
    """

    def __init__(self, files: SegmentFiles) -> None:
        self._files = files

    @cached_property
    def layout(self) -> IndexLayout:
        """Its options and partitions."""
        reader = self._files.open(METADATA_FILE)
        return decode_index_metadata(reader.schema.metadata, path=self._files.path(METADATA_FILE))

    @cached_property
    def analyzer(self) -> Analyzer:
        """Turns texts into words as they are in this segment."""
        return make_analyzer(self.layout.options)

    @cached_property
    def partitions(self) -> list[Partition]:
        """Its partitions."""
        layout = self.layout
        cached = PostingsCache(postings=BoundedCache(), positions=BoundedCache(CACHE_BYTES // 4))
        return [
            Partition(self._files, number, cached, has_transducer=layout.has_transducer) for number in layout.partitions
        ]

    @property
    def options(self) -> Mapping[str, Any]:
        """Options that it was built with."""
        return self.layout.options.given

    @property
    def statistics(self) -> Mapping[str, int]:
        """Numbers of documents and of distinct words, the latter added up over the partitions."""
        return {
            "num_docs": sum(partition.num_documents for partition in self.partitions),
            "num_tokens": sum(partition.num_words for partition in self.partitions),
        }

    def answer(self, question: Question, *, tells_null: bool) -> RowAnswer | None:
        """Leave all questions about values unanswered."""
        del question, tells_null

    def entries(self) -> Iterator[tuple[pa.Array, Int64s]]:
        """Read all words, each for each of its rows."""
        for partition in self.partitions:
            texts = {number: word for word, number in partition.tokens.items()}
            for numbers, postings, _ in partition.all_postings(with_position=False):
                tokens = pa.array([texts.get(number) for number in numbers.tolist()], pa.string())
                owners = np.repeat(np.arange(len(numbers)), postings.lengths)
                yield tokens.take(pa.array(owners)), partition.rows[postings.documents]

    def expected_entries(self, values: pa.Array, rows: Int64s) -> Iterator[tuple[pa.Array, Int64s]]:
        """Return the distinct words of each text."""
        for start, tokens in self.analyzer.batches(values):
            pairs = np.unique(tokens.owners << 32 | tokens.codes)
            terms = pa.array(tokens.terms, pa.string())
            yield terms.take(pa.array(pairs & 0xFFFFFFFF)), rows[start + (pairs >> 32)]


class InvertedKind:
    """The kind ``INVERTED``, also called ``FTS``."""

    name = "INVERTED"
    type_url = TYPE_URL
    index_versions = frozenset(range(VERSION + 1))  # pylance writes 0 when it merges segments; files tell the layout
    default_options: Mapping[str, Any] = {MEMORY_OPTION: DEFAULT_MEMORY}

    def check_options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return all options.

        Raises:
            InvalidInputError: An unknown option, or a value that does not fit.
            UnsupportedError: A tokenizer that lance_core does not have.
        """
        memory = given.get(MEMORY_OPTION, DEFAULT_MEMORY)
        if memory < 1:
            raise InvalidInputError(f"{MEMORY_OPTION} must be at least 1, not {memory}")
        return {MEMORY_OPTION: memory, **_text_options_of(given).given}

    def takes(self, kind: pa.DataType) -> bool:
        """Return whether values are texts, or lists of texts."""
        return holds_text(kind)

    def open(self, files: SegmentFiles, column: IndexedColumn) -> Segment:
        """Return a segment; nothing is read yet."""
        del column
        return InvertedSegment(files)

    def build(
        self, target: SegmentTarget, fragments: Iterable[FragmentColumn], options: Mapping[str, Any]
    ) -> SegmentContent:
        """Read the column and write the documents of each word."""
        from lance_core.index.text.inverted_build import InvertedBuilder  # noqa: PLC0415 rarely needed

        chosen = dict(options)
        described = _text_options_of(chosen)
        if target.column.leaf.logical_type == JSON:
            described = replace(described, lance_tokenizer="json")
        builder = InvertedBuilder(target.files, described, chosen.get(MEMORY_OPTION, DEFAULT_MEMORY))
        for fragment in fragments:
            for rows, texts in fragment.batches(by_row_id=target.with_stable_row_ids):
                builder.add_texts(rows, texts)
        return builder.finish()

    def rewrite(self, target: SegmentTarget, segments: Sequence[tuple[Segment, Relocation]]) -> SegmentContent:
        """Merge the documents of segments and write them with the rows where they are now."""
        from lance_core.index.text.inverted_build import InvertedBuilder  # noqa: PLC0415 rarely needed

        parts = [(segment, relocate) for segment, relocate in segments if isinstance(segment, InvertedSegment)]
        builder = InvertedBuilder(target.files, parts[-1][0].layout.options, DEFAULT_MEMORY)
        for segment, relocate in parts:
            for partition in segment.partitions:
                builder.add_partition(partition, relocate)
        return builder.finish()


def _text_options_of(options: Mapping[str, Any]) -> TextOptions:
    """Return the options of the tokenizer among all options."""
    return text_options({name: value for name, value in options.items() if name != MEMORY_OPTION})


INVERTED = InvertedKind()
