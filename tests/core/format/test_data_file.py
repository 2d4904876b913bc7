"""Footer, versions, column metadata, page layouts and encodings as bytes and as values."""

import pytest
from google.protobuf.any_pb2 import Any as AnyMessage

from lance_core._proto import encodings_v2_1_pb2 as pb
from lance_core._proto import encodings_v2_3_pb2 as pb23
from lance_core._proto import file2_pb2
from lance_core.errors import CorruptDataError, InvalidInputError, UnsupportedError
from lance_core.format.file.encodings import (
    ByteStreamSplit,
    Compression,
    Constant,
    FixedSizeList,
    Flat,
    Fsst,
    General,
    InlineBitpacking,
    OutOfLineBitpacking,
    Rle,
    Variable,
    decode_encoding,
    encode_encoding,
)
from lance_core.format.file.file_metadata import (
    Page,
    decode_column,
    decode_descriptor,
    encode_column,
    encode_descriptor,
)
from lance_core.format.file.file_version import check_writable, decode_footer_version, resolve_version
from lance_core.format.file.footer import Footer, decode_footer, decode_table, encode_footer, encode_table
from lance_core.format.file.page_layout import (
    ConstantLayout,
    FullZipLayout,
    Layer,
    MiniBlockLayout,
    SparseLayout,
    decode_layout,
    encode_layout,
)
from lance_core.format.schema import Field, Schema

ENCODINGS = [
    Flat(0),
    Flat(64),
    Variable(32),
    Constant(None),
    Constant(b""),
    InlineBitpacking(16),
    OutOfLineBitpacking(16, 0),
    OutOfLineBitpacking(16, 3),
    Rle(64),
    ByteStreamSplit(32),
    Fsst(b"table", Variable(64)),
    General(Compression.ZSTD, FixedSizeList(4, True, Flat(8)), 3),  # noqa: FBT003
    General(Compression.LZ4, Rle(8)),
]
FOOTER = Footer(
    column_metadata_start=64,
    column_table_start=80,
    global_table_start=112,
    num_global_buffers=1,
    num_columns=2,
    major=2,
    minor=2,
)


@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
def test_encodings(encoding):
    assert decode_encoding(encode_encoding(encoding)) == encoding


@pytest.mark.parametrize(
    "message",
    [
        pb.CompressiveEncoding(),
        pb.CompressiveEncoding(inline_bitpacking=pb.InlineBitpacking(uncompressed_bits_per_value=7)),
        pb.CompressiveEncoding(variable=pb.Variable(offsets=encode_encoding(Flat(16)))),
        pb.CompressiveEncoding(fixed_size_list=pb.FixedSizeList(values=encode_encoding(Flat(8)))),
        pb.CompressiveEncoding(fsst=pb.Fsst(values=encode_encoding(Flat(8)))),
    ],
)
def test_encodings_that_make_no_sense(message):
    with pytest.raises(CorruptDataError):
        decode_encoding(message)


def test_encodings_nested_without_end():
    encoding = Flat(8)
    for _ in range(40):
        encoding = General(Compression.LZ4, encoding)
    with pytest.raises(CorruptDataError, match="nested"):
        decode_encoding(encode_encoding(encoding))


def test_encodings_that_are_refused_by_name():
    with pytest.raises(UnsupportedError, match=r"Range of file version 2\.3 cannot be written"):
        encode_encoding(decode_encoding(pb.CompressiveEncoding(range=pb.Range(bits_per_value=64, delta=1))))
    with pytest.raises(UnsupportedError, match="scheme 9"):
        decode_encoding(pb.CompressiveEncoding(general=pb.General(compression=pb.BufferCompression(scheme=9))))


LAYOUTS = [
    MiniBlockLayout(
        rep=Flat(16),
        definition=None,
        values=Variable(32),
        dictionary=Flat(64),
        num_dictionary_items=7,
        layers=(Layer.ALL_VALID_ITEM, Layer.EMPTYABLE_LIST),
        num_buffers=1,
        has_repetition_index=True,
        num_items=9,
        has_large_chunk=True,
    ),
    FullZipLayout(
        bits_rep=1,
        bits_def=2,
        bits_per_value=None,
        bits_per_offset=32,
        num_items=3,
        num_visible_items=2,
        values=Variable(32),
        layers=(Layer.NULLABLE_ITEM,),
    ),
    ConstantLayout(layers=(Layer.NULLABLE_ITEM,), inline_value=b""),
    ConstantLayout(layers=(Layer.NULLABLE_ITEM,), definition=Rle(16), num_def_values=4),
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda one: type(one).__name__)
def test_layouts(layout):
    data = encode_layout(layout)
    assert decode_layout(data) == layout
    assert AnyMessage.FromString(data).type_url == "/lance.encodings21.PageLayout"


def test_layouts_that_are_refused_by_name():
    with pytest.raises(UnsupportedError, match="OtherLayout"):
        decode_layout(AnyMessage(type_url="/lance.encodings29.OtherLayout").SerializeToString())
    with pytest.raises(CorruptDataError, match="structure"):
        decode_layout(AnyMessage(type_url="/lance.encodings23.PlanarLayout").SerializeToString())
    blob = pb.PageLayout(blob_layout=pb.BlobLayout()).SerializeToString()
    with pytest.raises(UnsupportedError, match="blobs whose descriptions"):
        decode_layout(AnyMessage(type_url="/lance.encodings21.PageLayout", value=blob).SerializeToString())
    for data in (b"\xff", AnyMessage(type_url="/lance.encodings21.PageLayout").SerializeToString()):
        with pytest.raises(CorruptDataError):
            decode_layout(data)


def _planar(values, *, is_sparse):
    layers = pb23.SparseStructure(layers=[pb23.SparseLayer(validity=pb23.SparseValidity(meaning=1, positions=ONE))])
    dense = pb23.DenseStructure(layers=[pb.REPDEF_NULLABLE_ITEM])
    structure = pb23.Structure(sparse=layers) if is_sparse else pb23.Structure(dense=dense)
    message = pb23.PlanarLayout(structure=structure, values=values).SerializeToString()
    return AnyMessage(type_url="/lance.encodings23.PlanarLayout", value=message).SerializeToString()


ONE = pb.CompressiveEncoding(flat=pb.Flat(bits_per_value=64))
ZIPPED = pb23.ZippedValues(values=ONE, bits_per_value=64, num_items=3)


def test_values_below_sparse_layers():
    chunked = decode_layout(_planar(pb23.ValuePlane(chunked=pb23.ChunkedValues(values=ONE)), is_sparse=True))
    assert isinstance(chunked, SparseLayout)
    assert isinstance(chunked.values, MiniBlockLayout)
    zipped = decode_layout(_planar(pb23.ValuePlane(zipped=ZIPPED), is_sparse=True))
    assert (zipped.values.num_items, zipped.indices, zipped.layers) == (3, None, (Layer.ALL_VALID_ITEM,))
    indexed = decode_layout(
        _planar(pb23.ValuePlane(indexed=pb23.IndexedValues(indices=ONE, items=ZIPPED)), is_sparse=True)
    )
    assert (indexed.values, indexed.indices) == (zipped.values, Flat(64))
    with pytest.raises(UnsupportedError, match=r"file version 2\.3"):
        encode_layout(indexed)


def test_values_below_sparse_layers_have_no_levels():
    zipped = pb23.ZippedValues(values=ONE, bits_per_value=64, levels=pb23.ZipLevels(bits_def=1))
    for values in (
        pb23.ValuePlane(chunked=pb23.ChunkedValues(values=ONE, levels=pb23.ChunkLevels(definition=ONE))),
        pb23.ValuePlane(zipped=zipped),
        pb23.ValuePlane(indexed=pb23.IndexedValues(indices=ONE, items=zipped)),
    ):
        with pytest.raises(CorruptDataError, match="levels beside its sparse layers"):
            decode_layout(_planar(values, is_sparse=True))
    with pytest.raises(UnsupportedError, match="indexed values beside levels"):
        decode_layout(_planar(pb23.ValuePlane(indexed=pb23.IndexedValues()), is_sparse=False))
    with pytest.raises(CorruptDataError, match="no values"):
        decode_layout(_planar(pb23.ValuePlane(), is_sparse=True))


def test_footer():
    data = encode_footer(FOOTER)
    assert len(data) == 40
    assert decode_footer(b"in front" + data, 168) == FOOTER
    for bad in (data[:-1] + b"X", data[1:], b""):
        with pytest.raises(CorruptDataError):
            decode_footer(bad, 168)
    with pytest.raises(CorruptDataError, match="positions"):
        decode_footer(data, 167)


def test_tables():
    entries = [(0, 5), (64, 0)]
    assert decode_table(encode_table(entries), limit=64, what="column") == entries
    with pytest.raises(CorruptDataError, match="column"):
        decode_table(encode_table([(60, 5)]), limit=64, what="column")


def test_versions():
    assert resolve_version(None).name == resolve_version("stable").name == "2.2"
    assert resolve_version("next").name == "2.3"
    with pytest.raises(InvalidInputError, match="'3"):
        resolve_version("3.0")
    with pytest.raises(UnsupportedError, match=r"2\.3"):
        check_writable(resolve_version("2.3"))
    assert decode_footer_version(2, 1).name == "2.1"
    with pytest.raises(CorruptDataError):
        decode_footer_version(1, 0)
    with pytest.raises(UnsupportedError, match=r"version 2\.4 .* newer than 2\.3"):
        decode_footer_version(2, 4)


def test_column_metadata():
    pages = [
        Page(buffers=((64, 5), (128, 0)), num_rows=3, first_row=0, layout=b"x"),
        Page(buffers=(), num_rows=4, first_row=3, layout=b"y"),
    ]
    data = encode_column(pages)
    assert decode_column(data, limit=128) == tuple(pages)
    # What pylance writes for every column.
    assert b"\x0a\x1f/lance.encodings.ColumnEncoding\x12\x02\x0a\x00" in data
    with pytest.raises(CorruptDataError, match="outside"):
        decode_column(data, limit=68)
    deferred = file2_pb2.ColumnMetadata.Page(encoding=file2_pb2.Encoding(indirect=file2_pb2.DeferredEncoding()))
    with pytest.raises(UnsupportedError, match="deferred"):
        decode_column(file2_pb2.ColumnMetadata(pages=[deferred]).SerializeToString(), limit=0)
    with pytest.raises(CorruptDataError):
        decode_column(b"\xff\xff", limit=0)


def test_descriptor():
    schema = Schema((Field(id=4, name="a", logical_type="int32"),), {"k": b"v"})
    assert decode_descriptor(encode_descriptor(schema, 9)) == (schema, 9)
    with pytest.raises(CorruptDataError):
        decode_descriptor(b"\xff")
