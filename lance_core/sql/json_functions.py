"""Functions of SQL on JSON columns and on the JSONB that ``json_get`` returns.

A null document, path or text gives null. Paths that lead to one value at most are
followed in all documents together (`lance_core.encoding.jsonb_find`); for others each document is parsed.
"""

from __future__ import annotations

import json
import math
import re
from decimal import ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import pyarrow as pa

from lance_core.common.frozen import replace
from lance_core.common.late_module import LateModule
from lance_core.encoding.jsonb import encode_text, float_text
from lance_core.encoding.jsonb_arrays import decode_texts
from lance_core.encoding.jsonb_find import Step, find_values, lengths
from lance_core.encoding.kernels import scalar
from lance_core.errors import InvalidInputError
from lance_core.format.arrow_kinds import is_text
from lance_core.format.index.json_index import GETTERS, member_name
from lance_core.sql import pruning
from lance_core.sql.arrow_types import cast as cast_values
from lance_core.sql.kernels import pc
from lance_core.sql.pruning import UNKNOWN
from lance_core.sql.terms import Term, apply, converted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lance_core.sql import json_find, json_path
    from lance_core.sql.arrow_types import Datum
    from lance_core.sql.json_find import Document
    from lance_core.sql.json_path import Step as PathStep
else:  # a dozen regular expressions, for those who ask for paths
    json_find = LateModule("lance_core.sql.json_find")
    json_path = LateModule("lance_core.sql.json_path")

_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_NOT_FINITE = re.compile(r"[+-]?(?:inf|infinity|nan)", re.IGNORECASE)
_INDEX = re.compile(r"\+?\d+", re.ASCII)
_TRUTHS = {"true": True, "yes": True, "false": False, "no": False}
_MIN_INTEGER, _MAX_INTEGER = -(2**63), 2**63 - 1
_MOST_INDEX_DIGITS = 20
_MOST_DIGITS = 400
"""More digits than any float has before its point; whole numbers of more digits are out of range anyway."""


_Together: TypeAlias = "Callable[[pa.Array, str], pa.Array | None]"
"""Meaning of a function for documents and a text; None if it must be asked row by row."""


def _function(
    name: str, kind: pa.DataType, look: Callable[..., Any], together: _Together | None
) -> Callable[[Sequence[Term]], Term]:
    """Return a function of a document and texts.

    Args:
        name: Its name in SQL.
        kind: Type of what it returns.
        look: Its meaning for one row, without nulls.
        together: Its meaning for many rows.
    """

    def build(terms: Sequence[Term]) -> Term:
        document, *others = terms
        is_null = pa.types.is_null(document.type)
        if not (document.is_json or pa.types.is_large_binary(document.type) or is_null):
            raise InvalidInputError(f"{name} needs a JSON column, not {document.type}")
        texts = [_as_argument(term, name) for term in others]

        def evaluate(documents: Datum, *arguments: Datum) -> Datum:
            is_plain = isinstance(documents, pa.Array) and pa.types.is_large_binary(documents.type)
            if together and is_plain and isinstance(arguments[0], pa.Scalar) and arguments[0].is_valid:
                texts = together(documents, arguments[0].as_py())
                if texts is not None:
                    return texts
            return _each(look, kind, documents, arguments)

        member = _member_name(name, kind, document, others)
        if document.as_stored is not None:
            document = replace(document, evaluate=document.as_stored)
        inputs = (converted(document, pa.large_binary()) if is_null else document, *texts)
        result = apply(evaluate, inputs, name, kind=kind)
        asks = pruning.Comparison(member, "equal", scalar(True)) if member and kind == pa.bool_() else UNKNOWN  # noqa: FBT003 a value
        # null where nothing is found, whatever the column allows
        return Term(type=kind, evaluate=result.evaluate, member=member, asks=asks)

    return build


def _member_name(name: str, kind: pa.DataType, document: Term, others: Sequence[Term]) -> str:
    """Return the name under which indices know what a function returns; empty if they cannot know it."""
    key = others[0].literal
    if GETTERS.get(str(kind)) != name or not document.is_json or not document.path or key is None:
        return ""
    return member_name(document.path, kind, key.as_py()) if is_text(key.type) and key.is_valid else ""


def _as_argument(term: Term, name: str) -> Term:
    """Return a path, a key or an item as text; integers are written as text."""
    if pa.types.is_integer(term.type):
        return apply(lambda values: cast_values(values, pa.string()), (term,), name)
    if not is_text(term.type) and not pa.types.is_null(term.type):
        raise InvalidInputError(f"{name} needs text after the column, not {term.type}")
    return converted(term, pa.string())


def _each(look: Callable[..., Any], kind: pa.DataType, documents: Datum, arguments: Sequence[Datum]) -> Datum:
    """Return the answer for each row, or one for all rows if no argument is an array."""
    columns = (documents, *arguments)
    num_rows = max((len(column) for column in columns if not isinstance(column, pa.Scalar)), default=1)
    rows = [pa.repeat(column, num_rows) if isinstance(column, pa.Scalar) else column for column in columns]
    if pa.types.is_large_binary(rows[0].type):
        rows[0] = decode_texts(rows[0], with_constants=True)
    values = [
        None if None in row else look(_load(row[0]), *row[1:])
        for row in zip(*(row.to_pylist() for row in rows), strict=True)
    ]
    array = pa.array(values, kind)
    return array[0] if all(isinstance(column, pa.Scalar) for column in columns) else array


def _load(text: str) -> Document:
    return _DECODER.decode(text)


def _text(value: Document) -> str:
    """Return the text of a value, as JSONB has it."""
    if isinstance(value, float):
        return float_text(value)
    if isinstance(value, list):
        return f"[{','.join(map(_text, cast('list[Document]', value)))}]"
    if isinstance(value, dict):
        members = cast("dict[str, Document]", value).items()
        return f"{{{','.join(f'{_text(key)}:{_text(member)}' for key, member in members)}}}"
    return json.dumps(value, ensure_ascii=False)


_DECODER = json.JSONDecoder()


# ---------------------------------------------------------------------------------------------------------- by path


def _extract(document: Document, path: str) -> str | None:
    items = json_find.find_all(document, json_path.parse_path(path))
    if not items:
        return None
    return _text(items[0] if len(items) == 1 else items)


def _exists(document: Document, path: str) -> bool:
    return bool(json_find.find_all(document, json_path.parse_path(path)))


def _array_length(document: Document, path: str) -> int | None:
    """Return the length of the first match."""
    items = json_find.find_all(document, json_path.parse_path(path))
    if not items:
        return None
    return len(cast("list[Document]", items[0])) if isinstance(items[0], list) else 0


def _array_contains(document: Document, path: str, sought: str) -> bool:
    """Return whether one of the matching arrays has an item with this text."""
    arrays = [item for item in json_find.find_all(document, json_path.parse_path(path)) if isinstance(item, list)]
    return any(sought in _item_texts(item) for array in arrays for item in cast("list[Document]", array))


def _item_texts(item: Document) -> tuple[str, ...]:
    """Return the spellings of an item: a string with escapes, with and without its quotes."""
    text = _text(item)
    return (text, text[1:-1]) if isinstance(item, str) else (text,)


# ----------------------------------------------------------------------------------------------------------- by key


_ABSENT: Any = object()


def _member(document: Document, key: str) -> Document:
    """Return the member of an object, or the item of an array."""
    if isinstance(document, dict):
        return cast("dict[str, Document]", document).get(key, _ABSENT)
    if isinstance(document, list) and _INDEX.fullmatch(key) and len(key) < _MOST_INDEX_DIGITS:
        items, index = cast("list[Document]", document), int(key)
        return items[index] if index < len(items) else _ABSENT
    return _ABSENT


def _get(document: Document, key: str) -> bytes | None:
    value = _member(document, key)
    return None if value is _ABSENT else encode_text(_text(value))


def _get_as(what: str, convert: Callable[[Document], Any]) -> Callable[[Document, str], Any]:
    """Return the member as a value of SQL; null if there is none, or if it is null."""

    def look(document: Document, key: str) -> Any:
        value = _member(document, key)
        if value is _ABSENT or value is None:
            return None
        converted = None if isinstance(value, dict | list) else convert(value)
        if converted is None:
            shown = _text(value)
            raise InvalidInputError(
                f"{shown[:40]} at {key!r} of a JSON value is not {what}; read it with json_extract, or filter it out"
            )
        return converted

    return look


def _as_text(value: Document) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, str) else _text(value)


def _as_integer(value: Document) -> int | None:
    """Rounded half away from zero."""
    number = _as_number(value)
    if number is None or not _MIN_INTEGER <= number <= _MAX_INTEGER + 1:
        return None
    whole = int(Decimal(number).to_integral_value(ROUND_HALF_UP))
    return whole if _MIN_INTEGER <= whole <= _MAX_INTEGER else None


def _as_float(value: Document) -> float | None:
    number = _as_number(value)
    return None if number is None else float(number)


def _as_number(value: Document) -> float | None:
    """Return an integer or a float."""
    if not isinstance(value, str):
        return cast("float", value)
    if re.fullmatch(r"[+-]?\d+", value, re.ASCII) and len(value) < _MOST_DIGITS and abs(int(value)) <= 2**63:
        return int(value)
    return float(value) if _NUMBER.fullmatch(value) or _NOT_FINITE.fullmatch(value) else None


def _as_boolean(value: Document) -> bool | None:
    if isinstance(value, str):
        return _TRUTHS.get(value.lower())
    return value if isinstance(value, bool) else None


# ----------------------------------------------------------------------------------------------------- many together


def _at_path(documents: pa.Array, path: str) -> pa.Array | None:
    """Return the values at a path that leads to one value at most; None for other paths."""
    parsed = json_path.parse_path(path)
    if not isinstance(parsed, json_path.Path):
        return None
    converted_steps = [_converted(step) for step in parsed.steps]
    present_steps = [step for step in converted_steps if step is not None]
    if not converted_steps or len(present_steps) < len(converted_steps):
        return None
    return find_values(documents, present_steps)


def _converted(step: PathStep) -> Step | None:
    """Return a step that leads to one value at most; None for others."""
    if isinstance(step, json_path.Member):
        return None if step.name is None else Step(step.name)
    if not isinstance(step, json_path.Items) or step.ranges is None or len(step.ranges) != 1:
        return None
    first, last = step.ranges[0]
    return Step(None, first.number, first.is_last) if first == last else None


def _at_key(documents: pa.Array, key: str) -> pa.Array | None:
    is_index = _INDEX.fullmatch(key) and len(key) < _MOST_INDEX_DIGITS
    return find_values(documents, [Step(key, int(key) if is_index else None)])


def _extract_together(documents: pa.Array, path: str) -> pa.Array | None:
    texts = _at_path(documents, path)
    return None if texts is None else decode_texts(texts)


def _exists_together(documents: pa.Array, path: str) -> pa.Array | None:
    texts = _at_path(documents, path)
    return None if texts is None else pc.if_else(documents.is_valid(), texts.is_valid(), scalar(None, pa.bool_()))


def _array_length_together(documents: pa.Array, path: str) -> pa.Array | None:
    texts = _at_path(documents, path)
    return None if texts is None else lengths(texts)


def _get_together(look: Callable[[Document, str], Any], kind: pa.DataType) -> _Together:
    """Convert each different member once."""

    def together(documents: pa.Array, key: str) -> pa.Array | None:
        values = _at_key(documents, key)
        if values is None:
            return None
        texts = decode_texts(values, with_constants=True)
        if pa.types.is_integer(kind) or pa.types.is_floating(kind):
            try:
                return pc.cast(texts, kind)
            except pa.ArrowInvalid:
                pass  # some are no such numbers, or are in quotes
        texts = texts.dictionary_encode()
        members = [look({key: _load(text)}, key) for text in texts.dictionary.to_pylist()]
        return pa.array(members, kind).take(texts.indices)

    return together


_TYPED_GETTERS: Mapping[str, tuple[pa.DataType, Callable[[Document, str], Any]]] = {
    "json_get_string": (pa.string(), _get_as("text", _as_text)),
    "json_get_int": (pa.int64(), _get_as("an integer of 64 bits", _as_integer)),
    "json_get_float": (pa.float64(), _get_as("a number", _as_float)),
    "json_get_bool": (pa.bool_(), _get_as("a boolean", _as_boolean)),
}


def member_values(documents: pa.Array, kind: pa.DataType, key: str) -> pa.Array:
    """Return what the function for a type of values returns, such as ``json_get_int(doc, 'key')`` for int64.

    Args:
        documents: Large binary of JSONB.
        kind: One of the types in `lance_core.format.index.json_index.GETTERS`.
        key: Key of the member.

    Raises:
        InvalidInputError: A member is not of the type.
    """
    look = _TYPED_GETTERS[GETTERS[str(kind)]][1]
    values = _get_together(look, kind)(documents, key)
    return _each(look, kind, documents, (scalar(key),)) if values is None else values


def _entry(
    name: str, num_arguments: int, kind: pa.DataType, look: Callable[..., Any], together: _Together | None = None
) -> tuple[str, tuple[int, int, Callable[[Sequence[Term]], Term]]]:
    return name, (num_arguments, num_arguments, _function(name, kind, look, together))


JSON_FUNCTIONS: Mapping[str, tuple[int, int, Callable[[Sequence[Term]], Term]]] = dict(
    (
        _entry("json_extract", 2, pa.string(), _extract, _extract_together),
        _entry("json_exists", 2, pa.bool_(), _exists, _exists_together),
        _entry("json_get", 2, pa.large_binary(), _get, _at_key),
        *(_entry(name, 2, kind, look, _get_together(look, kind)) for name, (kind, look) in _TYPED_GETTERS.items()),
        _entry("json_array_length", 2, pa.int64(), _array_length, _array_length_together),
        _entry("json_array_contains", 3, pa.bool_(), _array_contains),
    )
)
"""Name to fewest arguments, most arguments and meaning."""
