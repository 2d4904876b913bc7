"""Queries of full-text searches; names and arguments as in pylance."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from lance_core.errors import InvalidInputError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Sequence

_MOST_BOOST = 1 << 20


class FullTextQueryType(Enum):
    """Kinds of queries."""

    MATCH = "match"
    MATCH_PHRASE = "match_phrase"
    BOOST = "boost"
    MULTI_MATCH = "multi_match"
    COMBINED_FIELDS = "combined_fields"
    BOOLEAN = "boolean"


class FullTextOperator(Enum):
    """Number of words of a query that a text must have: all, or at least one."""

    AND = "AND"
    OR = "OR"


class DocumentGranularity(str, Enum):  # noqa: UP042 as in pylance
    """Meaning of a document: a row, or an item of its list."""

    ROW = "row"
    LIST_ELEMENT = "list_element"


class Occur(Enum):
    """Part of a query in a `BooleanQuery`."""

    SHOULD = "SHOULD"
    MUST = "MUST"
    MUST_NOT = "MUST_NOT"


class FullTextQuery(ABC):
    """A query; ``&`` and ``|`` combine two of them."""

    @property
    def inner(self) -> FullTextQuery:
        """The query itself; pylance has a native object here."""
        return self

    @abstractmethod
    def query_type(self) -> FullTextQueryType:
        """Return the kind of the query."""

    def __and__(self, other: FullTextQuery) -> FullTextQuery:
        return BooleanQuery([(Occur.MUST, self), (Occur.MUST, other)])

    def __or__(self, other: FullTextQuery) -> FullTextQuery:
        return BooleanQuery([(Occur.SHOULD, self), (Occur.SHOULD, other)])


class MatchQuery(FullTextQuery):
    """Texts that have the words of a query.

    Args:
        query: The words.
        column: Name, or dotted path inside structs.
        boost: Scores are multiplied by it; at least 0.
        fuzziness: Words may be so many insertions, deletions and replacements of characters away. Words of the query
            are then compared as they are, as in pylance: not in lower case, not cut to stems. None is 0: pylance's
            documentation says that it depends on the length of words, but 14.0.2 looks for equal words.
        max_expansions: Words that are looked up in place of all words of the query with ``fuzziness``, those of the
            first word first, in the order of their code points.
        operator: Whether all words must be there, or at least one.
        prefix_length: Characters at the begin of a word that must be equal with ``fuzziness``.
        document_granularity: None or ``ROW``.

    Raises:
        InvalidInputError: A number out of range.
        UnsupportedError: Documents are items of lists.

    Examples:
        >>> MatchQuery("quick fox", "text", operator=FullTextOperator.AND).query_type().value
        'match'
    """

    def __init__(
        self,
        query: str,
        column: str,
        *,
        boost: float = 1.0,
        fuzziness: int | None = 0,
        max_expansions: int = 50,
        operator: FullTextOperator = FullTextOperator.OR,
        prefix_length: int = 0,
        document_granularity: DocumentGranularity | None = None,
    ) -> None:
        _check_text(query, column)
        _check_granularity(document_granularity)
        self.query = query
        self.column = column
        self.boost = _checked_boost(boost)
        self.fuzziness = None if fuzziness is None else _checked_number("fuzziness", fuzziness)
        self.max_expansions = _checked_number("max_expansions", max_expansions)
        self.operator = FullTextOperator(operator)
        self.prefix_length = _checked_number("prefix_length", prefix_length)

    def query_type(self) -> FullTextQueryType:
        """Return the kind of the query."""
        return FullTextQueryType.MATCH


class PhraseQuery(FullTextQuery):
    """Texts that have the words of a query one after the other. The index must have positions.

    Args:
        query: The words.
        column: Name, or dotted path inside structs.
        slop: Other words at most between two of them.
        document_granularity: None or ``ROW``.

    Raises:
        InvalidInputError: A negative ``slop``.
        UnsupportedError: Documents are items of lists.
    """

    def __init__(
        self, query: str, column: str, *, slop: int = 0, document_granularity: DocumentGranularity | None = None
    ) -> None:
        _check_text(query, column)
        _check_granularity(document_granularity)
        self.query = query
        self.column = column
        self.slop = _checked_number("slop", slop)

    def query_type(self) -> FullTextQueryType:
        """Return the kind of the query."""
        return FullTextQueryType.MATCH_PHRASE


class BoostQuery(FullTextQuery):
    """Texts that match one query, with less score if they match another one too.

    Args:
        positive: The query.
        negative: Its score, times ``negative_boost``, is taken off.
        negative_boost: Factor.
    """

    def __init__(self, positive: FullTextQuery, negative: FullTextQuery, *, negative_boost: float = 0.5) -> None:
        self.positive = _checked_query(positive)
        self.negative = _checked_query(negative)
        self.negative_boost = float(negative_boost)

    def query_type(self) -> FullTextQueryType:
        """Return the kind of the query."""
        return FullTextQueryType.BOOST


class MultiMatchQuery(FullTextQuery):
    """Texts that have the words of a query in one of several columns; the best column gives the score.

    Args:
        query: The words.
        columns: Names, or dotted paths inside structs.
        boosts: Factor of each column's scores; 1 if None.
        operator: Whether all words must be there, or at least one, in one column.

    Raises:
        InvalidInputError: No columns, or another number of factors.
    """

    def __init__(
        self,
        query: str,
        columns: list[str],
        *,
        boosts: list[float] | None = None,
        operator: FullTextOperator = FullTextOperator.OR,
    ) -> None:
        factors = _checked_boosts(columns, boosts)
        self.queries = tuple(
            MatchQuery(query, column, boost=boost, operator=operator)
            for column, boost in zip(columns, factors, strict=True)
        )

    def query_type(self) -> FullTextQueryType:
        """Return the kind of the query."""
        return FullTextQueryType.MULTI_MATCH


class CombinedFieldsQuery(FullTextQuery):
    """Rows that have the words of a query in several columns, which count as one text (BM25F).

    Other than with `MultiMatchQuery`, words of one query may be in different columns, and rare words are rare in all
    of them together. At least one column must have a full-text index; indices of the columns must have the same
    options, but for positions.

    Args:
        query: The words; each counts once.
        columns: Names, or dotted paths inside structs.
        boosts: Words and length of each column count so many times, from 1 to 1,048,576; 1 if None.
        operator: Whether all words must be there, each in any of the columns, or at least one.

    Raises:
        InvalidInputError: No columns, a column twice, another number of factors, or one that is out of range.
    """

    def __init__(
        self,
        query: str,
        columns: list[str],
        *,
        boosts: list[float] | None = None,
        operator: FullTextOperator = FullTextOperator.OR,
    ) -> None:
        self.boosts = _checked_boosts(columns, boosts)
        for column in columns:
            _check_text(query, column)
        if len(set(columns)) < len(columns):
            raise InvalidInputError(f"'columns' has a column twice: {', '.join(columns)}")
        if any(not 1 <= boost <= _MOST_BOOST for boost in self.boosts):
            raise InvalidInputError(f"'boosts' must be numbers from 1 to {_MOST_BOOST:,}, not {list(self.boosts)}")
        self.query = query
        self.columns = tuple(columns)
        self.operator = FullTextOperator(operator)

    def query_type(self) -> FullTextQueryType:
        """Return the kind of the query."""
        return FullTextQueryType.COMBINED_FIELDS


class BooleanQuery(FullTextQuery):
    """Texts that match all queries that ``MUST`` and none that ``MUST_NOT``.

    Scores of queries that ``MUST`` or ``SHOULD`` match are added. Without one that ``MUST``, one that ``SHOULD`` match
    does.

    Args:
        queries: Pairs of `Occur` and query.

    Raises:
        InvalidInputError: No query that must or should match.
    """

    def __init__(self, queries: list[tuple[Occur, FullTextQuery]]) -> None:
        self.queries = tuple((Occur(occur), _checked_query(query)) for occur, query in queries)
        if all(occur is Occur.MUST_NOT for occur, _ in self.queries):
            raise InvalidInputError("a BooleanQuery needs at least one query that must or should match")

    def query_type(self) -> FullTextQueryType:
        """Return the kind of the query."""
        return FullTextQueryType.BOOLEAN

    def of(self, occur: Occur) -> list[FullTextQuery]:
        """Return the queries of one kind."""
        return [query for result, query in self.queries if result is occur]


@dataclass(frozen=True)
class MinHashQuery:
    """Near duplicates of a text, given as ``nearest``: rows whose shingles are mostly those of the text.

    Attributes:
        text: The text.
        column: Column with an index of type ``"MINHASHLSH"``.

    Raises:
        InvalidInputError: Not a text and the name of a column.
    """

    text: str
    column: str

    def __post_init__(self) -> None:
        """Check the attributes."""
        _check_text(self.text, self.column)


def columns_of(query: FullTextQuery) -> list[str]:
    """Return the columns that a query searches, each once."""
    match query:
        case MatchQuery() | PhraseQuery():
            result = [query.column]
        case BoostQuery():
            result = columns_of(query.positive) + columns_of(query.negative)
        case MultiMatchQuery():
            result = [part.column for part in query.queries]
        case CombinedFieldsQuery():
            result = list(query.columns)
        case BooleanQuery():
            result = [column for _, part in query.queries for column in columns_of(part)]
        case _:
            raise UnsupportedError(f"queries of type {type(query).__name__} are not supported")
    return list(dict.fromkeys(result))


def parse_query(given: Any, columns: Sequence[str]) -> FullTextQuery:
    """Return the query that a caller means by ``full_text_query``.

    Args:
        given: Text, in double quotes for a phrase; a dict with ``query``, text or a query, and ``columns``; or a query.
        columns: Columns with full-text indices, which text without columns searches.

    Raises:
        InvalidInputError: None of these, no column to search, or a phrase and several columns.
    """
    if isinstance(given, FullTextQuery):
        return given
    if isinstance(given, str):
        given = {"query": given}
    if not isinstance(given, dict) or "query" not in given or given.keys() - {"query", "columns"}:
        raise InvalidInputError(
            "'full_text_query' must be text, a query of lance_core.query, or a dict with 'query' and 'columns', "
            f"not {given!r}"
        )
    query, wanted = given["query"], given.get("columns")
    if isinstance(query, FullTextQuery):
        return query
    if isinstance(wanted, str):
        raise InvalidInputError("'columns' of a full_text_query must be a list of names")
    chosen = list(columns if wanted is None else wanted)
    if not chosen:
        raise InvalidInputError(
            "no column has a full-text index; name the columns to search, or build one with "
            "create_scalar_index(column, 'INVERTED')"
        )
    phrase = _phrase_of(query)
    if phrase is None:
        return MatchQuery(query, chosen[0]) if len(chosen) == 1 else MultiMatchQuery(query, chosen)
    if len(chosen) > 1:
        raise InvalidInputError(
            f"text in double quotes is a phrase, which is searched in one column, not in {', '.join(chosen)}; give "
            "{'query': text, 'columns': [name]} or a PhraseQuery"
        )
    return PhraseQuery(phrase, chosen[0])


def _phrase_of(query: object) -> str | None:
    """Return the text between double quotes that enclose a query; None if there are none."""
    is_quoted = isinstance(query, str) and len(query) > 1 and query[0] == query[-1] == '"'
    return str(query)[1:-1] if is_quoted else None


def _check_text(query: object, column: object) -> None:
    if not isinstance(query, str) or not isinstance(column, str):
        raise InvalidInputError(f"a query needs text and the name of a column, not {query!r} and {column!r}")


def _check_granularity(granularity: DocumentGranularity | None) -> None:
    if granularity not in {None, DocumentGranularity.ROW}:
        raise UnsupportedError(
            f"'document_granularity' must be ROW, not {granularity!r}: searches find rows, not items"
        )


def _checked_boosts(columns: Sequence[str], boosts: Sequence[float] | None) -> tuple[float, ...]:
    """Return the factor of each column."""
    if isinstance(columns, str) or not columns:
        raise InvalidInputError("'columns' must be a list of at least one column")
    factors = (1.0,) * len(columns) if boosts is None else tuple(map(float, boosts))
    if len(factors) != len(columns):
        raise InvalidInputError(f"{len(columns)} columns have {len(factors)} 'boosts'; give one for each")
    return factors


def _checked_boost(boost: float) -> float:
    if not math.isfinite(boost) or boost < 0:
        raise InvalidInputError(f"'boost' must be a finite number of at least 0, not {boost}")
    return float(boost)


def _checked_number(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InvalidInputError(f"{name!r} must be a number of at least 0, not {value!r}")
    return value


def _checked_query(query: object) -> FullTextQuery:
    if not isinstance(query, FullTextQuery):
        raise InvalidInputError(f"{query!r} is no full-text query")
    return query
