"""Indices of near-duplicate texts: a MinHash signature of each text, and the documents of each band of one.

An index folder holds two Lance files; no column is nullable:

    signatures.lance    a row for each document: ``_rowid``, a row address, or a row id in tables with stable row ids;
                        and ``signature``, a fixed-size list of uint16
    bands.lance         ``band_key`` (uint64) and ``doc_id`` (uint32, row of the other file), ascending

Metadata of both: ``minhash_lsh_details``, the message ``MinHashLshIndexDetails`` in hexadecimal, and
``minhash_lsh_index_version`` "0". Metadata of the bands: ``minhash_lsh_num_docs``, ``minhash_lsh_page_rows`` and
``minhash_lsh_page_table_buffer``, number of a global buffer with the last key of each so many rows, little-endian.
Texts without words are no documents.

A signature is made of the shingles of a text: so many words in a row, with 0x1F between them; a shorter text is one.
Shingle x is hashed by xxHash64 with seed 42. Number i of the signature is ``c[i] * min(a[i] * x + b[i]) >> 48`` modulo
2^64, where a, b and c come from SplitMix64 with seed 42. The key of band j is j in the highest byte, and 56 bits of the
hash of its numbers. Source: the format's specification of version 0, and indices of pylance 14.0.2. The specification
calls the index experimental; its next version stores addresses under another name.
"""

from __future__ import annotations

import json

import pyarrow as pa

from lance_core.common.frozen import frozen
from lance_core.errors import CorruptDataError, InvalidInputError
from lance_core.format.index.inverted_index import TextOptions, encode_details, text_options
from lance_core.format.wire import field_of, varint

TYPE_URL = "/lance.index.pb.MinHashLshIndexDetails"
VERSION = 0
SIGNATURES_FILE, BANDS_FILE = "signatures.lance", "bands.lance"
DETAILS_KEY, VERSION_KEY = "minhash_lsh_details", "minhash_lsh_index_version"
DOCUMENTS_KEY, PAGE_ROWS_KEY = "minhash_lsh_num_docs", "minhash_lsh_page_rows"
PAGE_TABLE_KEY = "minhash_lsh_page_table_buffer"
PAGE_ROWS = 4096
SEPARATOR = b"\x1f"
SEED = 42
_PLAIN = {"lance-encoding:compression": "none"}
BANDS_SCHEMA = pa.schema(
    [
        pa.field("band_key", pa.uint64(), nullable=False, metadata=_PLAIN),
        pa.field("doc_id", pa.uint32(), nullable=False, metadata=_PLAIN),
    ]
)
_MOST_HASHES, _MOST_BANDS = 4096, 256


@frozen(kw_only=True)
class MinHashOptions:
    """Options of an index; the defaults are those that pylance builds with.

    Attributes:
        num_hashes: Numbers of a signature.
        num_bands: Bands of one.
        shingle_size: Words of a shingle.
        tokenizer: How texts become words.
    """

    num_hashes: int = 128
    num_bands: int = 16
    shingle_size: int = 3
    tokenizer: TextOptions = TextOptions(stem=False, remove_stop_words=False)


def signatures_schema(num_hashes: int) -> pa.Schema:
    """Return the schema of the signatures."""
    metadata = {"lance-encoding:structural-encoding": "fullzip", **_PLAIN}
    return pa.schema(
        [
            pa.field("_rowid", pa.uint64(), nullable=False),
            pa.field("signature", pa.list_(pa.uint16(), num_hashes), nullable=False, metadata=metadata),
        ]
    )


def encode_minhash_details(options: MinHashOptions) -> bytes:
    """Encode the message ``MinHashLshIndexDetails``; signatures have version 0, which is left out."""
    numbers = enumerate((options.num_hashes, options.num_bands, options.shingle_size), 1)
    data = b"".join(varint(number << 3) + varint(value) for number, value in numbers)
    return data + field_of(encode_details(options.tokenizer), 4)


def decode_minhash_details(text: bytes, *, path: str) -> MinHashOptions:
    """Decode the details in the metadata of a file.

    Raises:
        CorruptDataError: They are damaged.
        UnsupportedError: A tokenizer that lance_core does not have.
    """
    try:
        fields = _fields(bytes.fromhex(text.decode()))
        numbers = [fields.get(number, 0) for number in (1, 2, 3, 5)]
        tokenizer = _fields(bytes(fields.get(4, b"")))  # pyright: ignore[reportArgumentType] - an error says so
        hashes, bands, shingle, version = map(int, numbers)
        if version or not (0 < bands <= _MOST_BANDS and 0 < hashes <= _MOST_HASHES and shingle > 0) or hashes % bands:
            raise CorruptDataError("the details of the index are out of range", path=path)
        options = _tokenizer(tokenizer)
    except (ValueError, IndexError, TypeError, InvalidInputError) as error:
        raise CorruptDataError("the details of the index cannot be read", path=path) from error
    return MinHashOptions(num_hashes=hashes, num_bands=bands, shingle_size=shingle, tokenizer=options)


def _tokenizer(fields: dict[int, int | bytes]) -> TextOptions:
    """Return the options in a message ``InvertedIndexDetails``."""
    names = {5: "lower_case", 6: "stem", 7: "remove_stop_words", 8: "ascii_folding", 11: "prefix_only"}
    lengths = {4: "max_token_length", 9: "min_ngram_length", 10: "max_ngram_length"}
    return text_options(
        {
            "base_tokenizer": bytes(fields.get(1, b"")).decode(),
            "language": json.loads(bytes(fields.get(2, b'""'))),
            **{name: bool(fields.get(number, 0)) for number, name in names.items()},
            **{name: fields.get(number) for number, name in lengths.items()},
        }
    )


def _fields(data: bytes) -> dict[int, int | bytes]:
    """Return the numbers and bytes of a message by field number."""
    result: dict[int, int | bytes] = {}
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        value, at = _varint(data, at)
        if key & 7 == 2:
            if at + value > len(data):
                raise ValueError("a field ends behind its message")
            result[key >> 3], at = data[at : at + value], at + value
        elif key & 7 == 0:
            result[key >> 3] = value
        else:
            raise ValueError("a field of another type")
    return result


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value, at, shift = value | (byte & 0x7F) << shift, at + 1, shift + 7
        if byte < 0x80:
            return value, at
