"""Full-text indices: the documents of each word of a text column.

An index folder holds ``metadata.lance`` and three files for each partition:

    part_N_tokens.lance     the words and their numbers: as a transducer (`lance_core.format.index.fst`) in one row, or
                            sorted in columns ``_token`` and ``_token_id``
    part_N_docs.lance       a row for each document: ``_rowid``, a row address, or a row id in tables with stable row
                            ids; and ``_num_tokens``, its number of words
    part_N_invert.lance     a row for each word number: blocks of postings (`lance_core.format.index.posting_blocks`),
                            its largest score, its number of documents, and its positions if the index has them

``metadata.lance`` has the numbers of the partitions and the options of the tokenizer as schema metadata. Rows whose
text is null or has no words are no documents. Skip data (``_impacts``) and largest scores are only hints.
Source: what pylance 14.0.2 writes and reads.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lance_core.common.frozen import frozen
from lance_core.errors import CorruptDataError, InvalidInputError, UnsupportedError
from lance_core.format.wire import field_of, varint

if TYPE_CHECKING:
    from collections.abc import Mapping

TYPE_URL = "/lance.table.InvertedIndexDetails"
VERSION = 2
METADATA_FILE = "metadata.lance"
BLOCK_SIZE = 128
EMPTY_BITMAP = b":0\x00\x00\x00\x00\x00\x00"
"""A Roaring bitmap of nothing, the column ``deleted_fragments``."""

METADATA_SCHEMA = pa.schema([pa.field("deleted_fragments", pa.binary(), nullable=False)])
TOKENS_SCHEMA = pa.schema(
    [pa.field("_token", pa.string(), nullable=False), pa.field("_token_id", pa.uint32(), nullable=False)]
)
TRANSDUCER_SCHEMA = pa.schema(
    [
        pa.field("_token_fst_bytes", pa.large_binary(), nullable=False),
        pa.field("_token_next_id", pa.uint32(), nullable=False),
        pa.field("_token_total_length", pa.uint64(), nullable=False),
    ]
)
DOCS_SCHEMA = pa.schema(
    [pa.field("_rowid", pa.uint64(), nullable=False), pa.field("_num_tokens", pa.uint32(), nullable=False)]
)
_BLOCKS = pa.list_(pa.field("item", pa.large_binary(), nullable=True))
POSTINGS_SCHEMA = pa.schema(
    [
        pa.field("_posting", _BLOCKS, nullable=False),
        pa.field("_max_score", pa.float32(), nullable=False),
        pa.field("_length", pa.uint32(), nullable=False),
    ]
)
POSITIONS_SCHEMA = pa.schema(
    [
        *POSTINGS_SCHEMA,
        pa.field("_compressed_position", pa.large_binary(), nullable=False),
        pa.field("_position_block_offset", pa.list_(pa.field("item", pa.uint32(), nullable=True)), nullable=False),
    ]
)

_LAYOUT = {"format_version": "2", "posting_tail_codec": "varint_delta_v1", "posting_block_size": str(BLOCK_SIZE)}
_POSITIONS_LAYOUT = {"positions_layout": "shared_stream_v2", "positions_codec": "packed_delta_v1"}

BASE_TOKENIZERS = ("simple", "whitespace", "raw", "ngram")
LANGUAGES = (
    "Arabic", "Danish", "Dutch", "English", "Finnish", "French", "German", "Greek", "Hungarian", "Italian",
    "Norwegian", "Portuguese", "Romanian", "Russian", "Spanish", "Swedish", "Tamil", "Turkish",
)  # fmt: skip


@frozen(kw_only=True)
class TextOptions:
    """Options of the tokenizer.

    Attributes:
        base_tokenizer: ``simple`` (runs of letters and digits), ``whitespace``, ``raw`` (the whole text) or ``ngram``.
        language: Language of stems and stop words.
        with_position: The index stores where words are, which phrases need.
        max_token_length: Words of so many bytes of UTF-8 or more are left out; None for no limit.
        lower_case: Words are put in lower case.
        stem: Words are cut to their stems.
        remove_stop_words: Stop words are left out.
        custom_stop_words: Stop words in place of those of the language.
        ascii_folding: Accents are taken off.
        min_ngram_length: Characters of an n-gram at least.
        max_ngram_length: Characters of an n-gram at most.
        prefix_only: Only n-grams at the begin of a text.
        lance_tokenizer: ``text``, or ``json`` for documents, which the type of the column says.
    """

    base_tokenizer: str = "simple"
    language: str = "English"
    with_position: bool = False
    max_token_length: int | None = 40
    lower_case: bool = True
    stem: bool = True
    remove_stop_words: bool = True
    custom_stop_words: tuple[str, ...] | None = None
    ascii_folding: bool = True
    min_ngram_length: int = 3
    max_ngram_length: int = 3
    prefix_only: bool = False
    lance_tokenizer: str = "text"

    @property
    def given(self) -> dict[str, Any]:
        """Return what users give."""
        return {name: getattr(self, name) for name in _NAMES}


DEFAULT_TEXT_OPTIONS = TextOptions()
_DOCUMENT_KINDS = ("text", "json")
_NAMES = tuple(name for name in TextOptions.__annotations__ if name != "lance_tokenizer")
_FLAGS = tuple(name for name, kind in TextOptions.__annotations__.items() if kind == "bool")
_LENGTHS = ("min_ngram_length", "max_ngram_length")


def text_options(given: Mapping[str, Any]) -> TextOptions:
    """Check options that a user gave; names that are missing get pylance's defaults.

    Raises:
        InvalidInputError: An unknown option, or a value that does not fit.
        UnsupportedError: A tokenizer that lance_core does not have.
    """
    unknown = sorted(given.keys() - set(_NAMES))
    if unknown:
        raise InvalidInputError(f"an INVERTED index has no option {unknown[0]!r}; options are {', '.join(_NAMES)}")
    chosen: dict[str, Any] = dict(given)
    if chosen.get("base_tokenizer") == "ngram":
        chosen.setdefault("stem", False)
        chosen.setdefault("remove_stop_words", False)
    for name in _FLAGS:
        if not isinstance(chosen.get(name, True), bool):
            raise InvalidInputError(f"{name!r} must be true or false, not {chosen[name]!r}")
    if chosen.get("custom_stop_words") is not None:
        tokens = chosen["custom_stop_words"]
        if isinstance(tokens, str) or not all(isinstance(word, str) for word in tokens):
            raise InvalidInputError("'custom_stop_words' must be a list of words")
        chosen["custom_stop_words"] = tuple(tokens)
    options = TextOptions(**chosen)
    _check_tokenizer(options.base_tokenizer)
    if options.language not in LANGUAGES:
        raise InvalidInputError(f"'language' must be one of {', '.join(LANGUAGES)}, not {options.language!r}")
    _check_lengths(options)
    return options


def _check_tokenizer(name: object) -> None:
    if name not in BASE_TOKENIZERS:
        raise UnsupportedError(f"tokenizer {name!r} is not supported; lance_core has {', '.join(BASE_TOKENIZERS)}")


def _check_lengths(options: TextOptions) -> None:
    for name in (*_LENGTHS, "max_token_length"):
        value = getattr(options, name)
        if value is None and name == "max_token_length":
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise InvalidInputError(f"{name!r} must be a number of at least 1, not {value!r}")
    if options.min_ngram_length > options.max_ngram_length:
        raise InvalidInputError("'min_ngram_length' must not be larger than 'max_ngram_length'")


def without_filters(options: TextOptions) -> TextOptions:
    """Return options that cut texts the same way and leave words as they are."""
    return replace(
        options, max_token_length=None, lower_case=False, stem=False, remove_stop_words=False, ascii_folding=False
    )


def encode_params(options: TextOptions) -> str:
    """Encode options as the JSON in ``metadata.lance``."""
    tokens = options.custom_stop_words
    params: dict[str, Any] = {"lance_tokenizer": options.lance_tokenizer, **options.given}
    params["custom_stop_words"] = None if tokens is None else list(tokens)
    params |= {"block_size": BLOCK_SIZE, "split_identifiers": False, "split_on_numerics": False}
    params |= {"preserve_original": False, "index_operators": False}
    return json.dumps(params, ensure_ascii=False, separators=(",", ":"))


def decode_params(text: bytes, *, path: str) -> TextOptions:
    """Decode the options of an index.

    Raises:
        CorruptDataError: No such options.
        UnsupportedError: A tokenizer, a granularity or a block size that lance_core does not have.
    """
    try:
        params = json.loads(text)
        given = {name: params[name] for name in _NAMES if name in params}
        analyzer, block_size = params.get("lance_tokenizer") or "text", params.get("block_size") or BLOCK_SIZE
        granularity = params.get("document_granularity") or "row"
    except (ValueError, AttributeError, RecursionError) as error:
        raise CorruptDataError("the options of a full-text index cannot be read", path=path) from error
    if analyzer not in _DOCUMENT_KINDS:
        raise UnsupportedError(f"full-text indices of analyzer {analyzer!r} are not supported", path=path)
    if block_size != BLOCK_SIZE or granularity != "row":
        raise UnsupportedError(
            f"full-text indices with blocks of {block_size} documents or of granularity {granularity!r} are not "
            "supported",
            path=path,
        )
    try:
        return replace(text_options(given), lance_tokenizer=analyzer)
    except InvalidInputError as error:
        raise CorruptDataError(f"the options of a full-text index are wrong: {error.message}", path=path) from error


def encode_details(options: TextOptions) -> bytes:
    """Encode the message ``InvertedIndexDetails``, with what readers may show without opening files."""
    flags = {
        3: options.with_position,
        5: options.lower_case,
        6: options.stem,
        7: options.remove_stop_words,
        8: options.ascii_folding,
        11: options.prefix_only,
    }
    numbers = {number: 1 for number, value in flags.items() if value}
    if options.max_token_length is not None:
        numbers[4] = options.max_token_length
    numbers |= {9: options.min_ngram_length, 10: options.max_ngram_length, 12: BLOCK_SIZE, 15: VERSION}
    data = field_of(options.base_tokenizer.encode(), 1) + field_of(json.dumps(options.language).encode(), 2)
    return data + b"".join(varint(number << 3) + varint(numbers[number]) for number in sorted(numbers))


def file_names(partition: int) -> tuple[str, str, str]:
    """Return the names of the files of a partition: words, documents, postings."""
    return f"part_{partition}_tokens.lance", f"part_{partition}_docs.lance", f"part_{partition}_invert.lance"


def index_metadata(options: TextOptions, partitions: list[int]) -> dict[str, str]:
    """Return the schema metadata of ``metadata.lance``."""
    return {
        "partitions": json.dumps(partitions),
        "params": encode_params(options),
        "token_set_format": "fst",  # pylance merges only segments of one format, and writes this one
        **posting_metadata(options),
    }


def posting_metadata(options: TextOptions) -> dict[str, str]:
    """Return the schema metadata of a file of postings."""
    return {**_LAYOUT, **(_POSITIONS_LAYOUT if options.with_position else {})}


@frozen(kw_only=True)
class IndexLayout:
    """Content of ``metadata.lance``.

    Attributes:
        options: How texts become words.
        partitions: Numbers of the partitions.
        has_transducer: Words are a transducer; else they are columns.
    """

    options: TextOptions
    partitions: tuple[int, ...]
    has_transducer: bool


def decode_index_metadata(metadata: Mapping[str, bytes], *, path: str) -> IndexLayout:
    """Decode the schema metadata of ``metadata.lance``.

    Raises:
        CorruptDataError: Something is missing or damaged.
        UnsupportedError: Another layout or tokenizer.
    """
    for name, value in (_LAYOUT | _POSITIONS_LAYOUT).items():
        result = metadata.get(name, value.encode()).decode(errors="replace")
        if result != value:
            raise UnsupportedError(f"full-text indices with {name} {result!r} are not supported", path=path)
    tokens = metadata.get("token_set_format", b"arrow").decode(errors="replace")
    if tokens not in {"arrow", "fst"}:
        raise UnsupportedError(f"full-text indices with words as {tokens!r} are not supported", path=path)
    try:
        partitions = tuple(int(number) for number in json.loads(metadata["partitions"]))
        params = metadata["params"]
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        raise CorruptDataError("the partitions of a full-text index cannot be read", path=path) from error
    return IndexLayout(options=decode_params(params, path=path), partitions=partitions, has_transducer=tokens == "fst")
