"""What the metadata of fields asks for."""

import pyarrow as pa
import pytest

from lance_core.encoding.leaves import leaf_paths
from lance_core.encoding.options import PageOptions, page_options
from lance_core.errors import InvalidInputError
from lance_core.format.file.encodings import Compression
from lance_core.format.schema import Schema


def options_of(field, version="2.2"):
    top = Schema.from_arrow(pa.schema([field])).fields[0]
    return [page_options(path, version) for path in leaf_paths(top)]


def asking(**asked):
    return {f"lance-encoding:{key.replace('_', '-')}": value for key, value in asked.items()}


def test_nothing_asked_for():
    assert options_of(pa.field("c", pa.int32())) == [PageOptions(version="2.2")]
    assert options_of(pa.field("c", pa.int32()), "2.1") == [PageOptions(version="2.1")]
    assert PageOptions(version="2.2").has_large_chunks
    assert not PageOptions(version="2.1").has_large_chunks


def test_all_keys():
    metadata = asking(
        compression="zstd",
        compression_level="-3",
        rle_threshold="0.25",
        bss="on",
        dict_divisor="5",
        dict_size_ratio="1",
        dict_values_compression="none",
        dict_values_compression_level="4",
        structural_encoding="fullzip",
        minichunk_size="512",
    )
    [options] = options_of(pa.field("c", pa.int32(), metadata=metadata))
    assert options == PageOptions(
        version="2.2",
        compression="zstd",
        compression_level=-3,
        rle_threshold=0.25,
        bss="on",
        dict_divisor=5,
        dict_size_ratio=1.0,
        dict_values_compression="none",
        dict_values_compression_level=4,
        structural_encoding="fullzip",
        minichunk_size=512,
    )


@pytest.mark.parametrize(("word", "codec"), [("lz4", Compression.LZ4), ("zstd", Compression.ZSTD), ("fsst", None)])
def test_codecs(word, codec):
    [options] = options_of(pa.field("c", pa.string(), metadata=asking(compression=word)))
    assert options.codec is codec


def test_columns_ask_for_themselves_but_the_whole_field_for_its_layout():
    leaves = [pa.field("x", pa.int32(), metadata=asking(compression="none")), pa.field("y", pa.string())]
    metadata = asking(compression="zstd", structural_encoding="fullzip")
    x, y = options_of(pa.field("s", pa.struct(leaves), metadata=metadata))
    assert (x.compression, x.structural_encoding) == ("none", "fullzip")
    assert (y.compression, y.structural_encoding) == (None, "fullzip")


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("compression", "ZSTD", "zstd, lz4, fsst, none"),
        ("compression_level", "1.5", "whole numbers"),
        ("rle_threshold", "-0.1", "numbers from 0 to 1"),
        ("dict_size_ratio", "0", "but not 0"),
        ("dict_divisor", "-2", "whole numbers from 1"),
        ("structural_encoding", "sparse", "miniblock, fullzip"),
    ],
)
def test_nonsense_is_named(key, value, allowed):
    with pytest.raises(InvalidInputError) as caught:
        options_of(pa.field("column", pa.int32(), metadata=asking(**{key: value})))
    assert all(part in str(caught.value) for part in ("'column'", key.replace("_", "-"), repr(value), allowed))


def test_lists_of_booleans_cannot_stand_one_by_one():
    with pytest.raises(InvalidInputError, match="fullzip"):
        options_of(pa.field("c", pa.list_(pa.bool_(), 8), metadata=asking(structural_encoding="fullzip")))
