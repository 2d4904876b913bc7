"""Files that were made to hurt: what they claim is not there, too much, or without end."""

import gc
import json
import struct
import time
from itertools import count

import numpy as np
import pyarrow as pa
import pytest
from google.protobuf.any_pb2 import Any

import lance_core
from lance_core._proto import encodings_v2_1_pb2 as encodings
from lance_core._proto import file2_pb2, file_pb2, rowids_pb2, table_pb2, transaction_pb2
from lance_core.common.limits import Limits, limits
from lance_core.errors import InvalidInputError, LanceError, UnsupportedError
from lance_core.file.read.reader import DataFileReader
from lance_core.format.schema import Schema
from lance_core.format.table.deletion import decode_deletions
from lance_core.format.table.fragment import DeletionFile, DeletionFileType
from lance_core.format.table.paths import ManifestNaming, manifest_path
from lance_core.format.table.refs import decode_tag
from lance_core.format.table.transaction import decode_transaction
from lance_core.store.memory import memory_store
from lance_core.testing.memory import forget_most_memory, most_memory

MAX_SECONDS, MAX_BYTES = 1.0, 256 << 20
NUMBERS = count()

HUGE = (1 << 63) - 1


def manifest_file(message, *, size=None, position=0, end=b"LANC", before=b""):
    size = len(message) if size is None else size
    return before + struct.pack("<I", size) + message + struct.pack("<qHH", position or len(before), 0, 2) + end


def field(name="x", number=0, parent=-1, kind="int64", **others):
    return file_pb2.Field(name=name, id=number, parent_id=parent, logical_type=kind, nullable=True, type=2, **others)


def fragment(number=0, rows=3, file=None, **others):
    file = file or table_pb2.DataFile(
        path="a.lance", fields=[0], column_indices=[0], file_major_version=2, file_minor_version=3
    )
    return table_pb2.DataFragment(id=number, files=[file], physical_rows=rows, **others)


def manifest(*, fields=None, fragments=None, version=2, **others):
    pb = table_pb2.Manifest(
        fields=[field()] if fields is None else fields,
        fragments=[one.SerializeToString() for one in ([fragment()] if fragments is None else fragments)],
        version=version,
        data_format=table_pb2.DataStorageFormat(file_format="lance", version="2.2"),
        **others,
    )
    return pb.SerializeToString()


def nested(depth):
    """A message inside a message, again and again: unknown field 100."""
    data = b""
    for _ in range(depth):
        data = b"\xa2\x06" + _varint(len(data)) + data
        if len(data) > 1 << 16:
            break
    return data


def _varint(number):
    out = b""
    while number > 127:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])


def row_ids(**segment):
    pb = rowids_pb2.RowIdSequence(segments=[rowids_pb2.U64Segment(**segment)])
    return fragment(inline_row_ids=pb.SerializeToString())


def _range(start, end):
    return rowids_pb2.U64Segment.Range(start=start, end=end)


def manifests():
    """Content of the manifest file of version 2, by what is wrong with it."""
    good = manifest()
    stable = {"reader_feature_flags": 2, "writer_feature_flags": 2}
    yield "nothing", b""
    yield "one byte", b"x"
    yield "only a footer", manifest_file(b"")[4:]
    yield "an empty message", manifest_file(b"")
    yield "position behind the end", manifest_file(good, position=1 << 20)
    yield "position below zero", manifest_file(good, position=-5)
    yield "position that overflows", manifest_file(good, position=HUGE)
    yield "size behind the end", manifest_file(good, size=len(good) + 1)
    yield "size of four GiB", manifest_file(good, size=(1 << 32) - 1)
    yield "another magic", manifest_file(good, end=b"LANX")
    yield "another version inside", manifest_file(manifest(version=7))
    yield "a version of 2^64", manifest_file(manifest(version=(1 << 64) - 1))
    yield "no fields", manifest_file(manifest(fields=[]))
    yield "garbage", manifest_file(b"\xff" * 500)
    yield "a file of zeros", bytes(1 << 20)
    yield "nested without end", manifest_file(b"\x0a" * 10_000)
    yield "ten million empty fragments", manifest_file(good + b"\x12\x00" * 10_000_000)
    yield "ten million empty fields", manifest_file(good + b"\x0a\x00" * 10_000_000)
    yield "five million empty settings", manifest_file(good + b"\x82\x01\x00" * 5_000_000)
    yield "five million empty base paths", manifest_file(good + b"\x92\x01\x00" * 5_000_000)
    yield "index section behind the end", manifest_file(manifest(index_section=1 << 30))
    yield "index section that overflows", manifest_file(manifest(index_section=(1 << 64) - 1))
    yield "transaction section behind the end", manifest_file(manifest(transaction_section=1 << 40))
    yield "transaction section of four GiB", manifest_file(manifest(transaction_section=0), before=b"\xff" * 8)
    yield "a field that is its own parent", manifest_file(manifest(fields=[field(number=3, parent=3)]))
    yield "fields in a circle", manifest_file(manifest(fields=[field("a", 1, 2, "struct"), field("b", 2, 1, "struct")]))
    yield "a parent that is not there", manifest_file(manifest(fields=[field(number=1, parent=77)]))
    chain = [field("x", number, number - 1, "struct") for number in range(5000)]
    yield "five thousand structs in each other", manifest_file(manifest(fields=chain))
    for kind in (
        "fixed_size_list:float:4611686018427387904",
        "fixed_size_list:" * 400 + "int8:1",
        "fixed_size_list:float:-1",
        "fixed_size_binary:99999999999999999999",
        "fixed_size_binary:-3",
        "decimal:128:1000:2",
        "decimal:512:10:2",
        "dict:string:float:false",
        "timestamp:year:-",
        "timestamp:us:" + "x" * 5000,
        "x" * 100_000,
        "",
    ):
        yield f"type {kind[:40]!r}", manifest_file(manifest(fields=[field(kind=kind)]))
    yield "unknown features", manifest_file(manifest(reader_feature_flags=1 << 40))
    yield "another format", manifest_file(manifest()[:-9] + b"\xaa\x01\x00")
    yield "a fragment of garbage", manifest_file(good + b"\x12\x04\xff\xff\xff\xff")
    yield "a fragment of 2^62 rows", manifest_file(manifest(fragments=[fragment(rows=1 << 62)]))
    yield "a file that is not there", manifest_file(good)
    wide = table_pb2.DataFile(path="a.lance", fields=[0, 1, 2], column_indices=[0], file_major_version=2)
    yield "more fields than columns", manifest_file(manifest(fragments=[fragment(file=wide)]))
    outside = table_pb2.DataFile(path="a.lance", fields=[0], column_indices=[0], file_major_version=2, base_id=9)
    yield "a base path that is not there", manifest_file(manifest(fragments=[fragment(file=outside)]))
    yield "2^63 row ids", manifest_file(manifest(fragments=[row_ids(range=_range(0, 1 << 63))], **stable))
    yield "row ids backwards", manifest_file(manifest(fragments=[row_ids(range=_range(9, 3))], **stable))
    holes = rowids_pb2.U64Segment.RangeWithBitmap(start=0, end=1 << 50, bitmap=b"\xff")
    yield "a bitmap of 2^50 row ids", manifest_file(manifest(fragments=[row_ids(range_with_bitmap=holes)], **stable))
    deleted = table_pb2.DeletionFile(num_deleted_rows=HUGE, id=1, read_version=1)
    yield "2^63 deleted rows", manifest_file(manifest(fragments=[fragment(deletion_file=deleted)]))


def transactions():
    """Content of a transaction file, by what is wrong with it."""
    yield "garbage", b"\xff" * 300
    yield "nested without end", nested(10_000) + b"\xa2\x06\xff\xff\xff\xff\x0f"
    yield "a length of 2^60", b"\x12" + _varint(1 << 60)
    yield "truncated", transaction_pb2.Transaction(uuid="u" * 50, read_version=1).SerializeToString()[:-9]
    yield "text that is none", b"\x12\x02\xff\xfe"


def refs():
    """Content of the file of a tag, by what is wrong with it."""
    yield "nested lists", b"[" * 200_000
    yield "nested objects", b'{"version":' * 100_000
    yield "a number of 10,000 digits", b'{"version": ' + b"9" * 10_000 + b', "manifestSize": 1}'
    yield "a negative version", b'{"version": -1, "manifestSize": 1}'
    yield "a fraction", b'{"version": 1.5, "manifestSize": 1}'
    yield "no number", b'{"version": NaN, "manifestSize": 1}'
    yield "infinity", b'{"version": 1e999, "manifestSize": 1}'
    yield "a list", b"[1]"
    yield "no text", b"\xff\xfe\x00"
    yield "metadata of numbers", b'{"version": 1, "manifestSize": 1, "metadata": {"a": 1}}'
    yield "a wrong checksum", json.dumps({"version": 1, "manifestSize": 1, "checksum": 5}).encode()


def _arrow(batches, schema, **options):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def deletions():
    """Content of a deletion file for 3 of 100 rows, by what is wrong with it."""
    schema = pa.schema([pa.field("row_id", pa.uint32(), nullable=False)])

    def batch(values, own=schema):
        return pa.record_batch([pa.array(values, own.field(0).type)], schema=own)

    yield "nothing", b""
    yield "garbage", b"ARROW1\0\0" + b"\xff" * 200 + b"ARROW1"
    yield "beyond the rows", _arrow([batch([1, 2, 100])], schema)
    yield "too few", _arrow([batch([1, 2])], schema)
    yield "one twice", _arrow([batch([1, 2, 2])], schema)
    yield "two batches", _arrow([batch([1]), batch([2, 3])], schema)
    yield "no batch", _arrow([], schema)
    other = pa.schema([pa.field("row_id", pa.int64(), nullable=False)])
    yield "another type", _arrow([batch([1, 2, 3], other)], other)
    yield "a bomb of a gibibyte", _arrow([batch(np.zeros(1 << 26, np.uint32))], schema, compression="zstd")
    packed = _arrow([batch([1, 2, 3])], schema, compression="zstd")
    at = packed.find(struct.pack("<q", 12))
    assert at > 0
    yield "a claim of 2^62 bytes", packed[:at] + struct.pack("<q", 1 << 62) + packed[at + 8 :]
    yield "a claim below zero", packed[:at] + struct.pack("<q", -7) + packed[at + 8 :]
    yield "truncated", packed[:-30]


def bitmaps():
    """Content of a deletion file that is a bitmap."""
    yield "nothing", b""
    yield "2^32 containers", struct.pack("<II", 12346, 0xFFFFFFFF)
    yield "65,536 containers without any", struct.pack("<II", 12346, 65536)
    yield "garbage", b"\x3a\x30\x00\x00" + b"\xff" * 100
    yield "a wrong cookie", b"\x00" * 64


# ---------------------------------------------------------------------------------------------------------- data files


def parts(data):
    """Footer, tables and column metadata of a data file without checksums."""
    columns_at, column_table, global_table, num_globals, num_columns, major, minor, _ = struct.unpack(
        "<QQQIIHH4s", data[-40:]
    )
    columns = [
        data[start : start + size]
        for start, size in (struct.unpack_from("<QQ", data, column_table + 16 * i) for i in range(num_columns))
    ]
    descriptor = struct.unpack_from("<QQ", data, global_table)
    return columns_at, columns, descriptor, (major, minor), num_globals


def rebuilt(data, columns=None, descriptor=None, **footer):
    """The file with other metadata: serialized columns and file descriptor, numbers of the footer."""
    columns_at, own, (start, size), (major, minor), _ = parts(data)
    body = data[:columns_at] if descriptor is None else data[:columns_at] + descriptor
    place = (start, size) if descriptor is None else (columns_at, len(descriptor))
    table, columns_start = [], len(body)
    for column in own if columns is None else columns:
        table.append((len(body), len(column)))
        body += column
    numbers = {
        "columns": columns_start,
        "column_table": len(body),
        "global_table": len(body) + 16 * len(table),
        "num_globals": 1,
        "num_columns": len(table),
        "places": table,
        "descriptor_place": place,
    } | footer
    body += b"".join(struct.pack("<QQ", *one) for one in numbers["places"])
    body += struct.pack("<QQ", *numbers["descriptor_place"])
    names = ("columns", "column_table", "global_table", "num_globals", "num_columns")
    return body + struct.pack("<QQQIIHH4s", *(numbers[name] for name in names), major, minor, b"LANC")


def with_page(data, change, column=0):
    """The file with its first page of a column changed."""
    _, columns, *_ = parts(data)
    pb = file2_pb2.ColumnMetadata.FromString(columns[column])
    change(pb.pages[0])
    columns[column] = pb.SerializeToString()
    return rebuilt(data, columns)


def with_layout(data, change, column=0):
    """The file with the layout of its first page changed (files since 2.1)."""

    def changed(page):
        layout = encodings.PageLayout.FromString(Any.FromString(page.encoding.direct.encoding).value)
        change(layout)
        page.encoding.direct.encoding = _any("/lance.encodings21.PageLayout", layout.SerializeToString())

    return with_page(data, changed, column)


def _any(url, value):
    return Any(type_url=url, value=value).SerializeToString()


def data_files(data):
    """The file ``data`` (an int64 column, without checksums), with something wrong."""
    yield "nothing", b""
    yield "only a footer", data[-40:]
    yield "2^32 columns", rebuilt(data, num_columns=(1 << 32) - 1)
    yield "2^32 global buffers", rebuilt(data, num_globals=(1 << 32) - 1)
    yield "no global buffers", rebuilt(data, num_globals=0)
    yield "column table behind the end", rebuilt(data, column_table=HUGE)
    yield "global table behind the end", rebuilt(data, global_table=1 << 50)
    yield "column metadata of 2^60 bytes", rebuilt(data, places=[(0, 1 << 60)])
    yield "column metadata that overflows", rebuilt(data, places=[((1 << 64) - 8, 16)])
    yield "column metadata behind the end", rebuilt(data, places=[(1 << 40, 5)])
    yield "column metadata of garbage", rebuilt(data, columns=[b"\xff" * 50])
    yield "a descriptor of 2^60 bytes", rebuilt(data, descriptor_place=(0, 1 << 60))
    yield "a descriptor of garbage", rebuilt(data, descriptor=b"\xff" * 50)
    descriptor = file_pb2.FileDescriptor(length=1 << 60, schema=file_pb2.Schema(fields=[field()]))
    yield "a descriptor of 2^60 rows", rebuilt(data, descriptor=descriptor.SerializeToString())
    schema = b"\x0a\x00" * 2_000_000
    descriptor = b"\x0a" + _varint(len(schema)) + schema
    yield "a descriptor of two million fields", rebuilt(data, descriptor=descriptor)
    for name, change in (
        ("a page of 2^60 rows", lambda page: setattr(page, "length", 1 << 60)),
        ("a page of 2^63 rows", lambda page: setattr(page, "length", (1 << 64) - 1)),
        ("more sizes than positions", lambda page: page.buffer_sizes.append(5)),
        ("no buffers", lambda page: (page.ClearField("buffer_offsets"), page.ClearField("buffer_sizes"))),
        ("a buffer of 2^62 bytes", lambda page: page.buffer_sizes.__setitem__(1, 1 << 62)),
        ("a buffer behind the end", lambda page: page.buffer_offsets.__setitem__(1, 1 << 40)),
        ("a buffer that overflows", lambda page: page.buffer_offsets.__setitem__(1, (1 << 64) - 4)),
        ("a buffer over the footer", lambda page: page.buffer_sizes.__setitem__(1, len(data))),
        ("a layout of garbage", lambda page: setattr(page.encoding.direct, "encoding", b"\xff" * 99)),
        ("a layout of another name", lambda page: setattr(page.encoding.direct, "encoding", _any("/x.Y", b""))),
        ("no layout", lambda page: page.ClearField("encoding")),
    ):
        yield name, with_page(data, change)
    deep = encodings.CompressiveEncoding()
    for _ in range(30):
        deep = encodings.CompressiveEncoding(byte_stream_split=encodings.ByteStreamSplit(values=deep))
    flat = encodings.CompressiveEncoding(flat=encodings.Flat(bits_per_value=64))

    def values(**encoding):
        return lambda layout: layout.mini_block_layout.value_compression.CopyFrom(
            encodings.CompressiveEncoding(**encoding)
        )

    packing = encodings.InlineBitpacking
    for name, change in (
        ("bits packed by 65", values(inline_bitpacking=packing(uncompressed_bits_per_value=65))),
        ("bits packed by 2^40", values(inline_bitpacking=packing(uncompressed_bits_per_value=1 << 40))),
        ("values of 2^62 bits", values(flat=encodings.Flat(bits_per_value=1 << 62))),
        ("encodings in each other", lambda layout: layout.mini_block_layout.value_compression.CopyFrom(deep)),
        ("lists of 2^60 items", values(fixed_size_list=encodings.FixedSizeList(items_per_value=1 << 60, values=flat))),
        ("no encoding", lambda layout: layout.mini_block_layout.ClearField("value_compression")),
        ("2^60 items", lambda layout: setattr(layout.mini_block_layout, "num_items", 1 << 60)),
        ("a dictionary that is not there", lambda layout: layout.mini_block_layout.dictionary.CopyFrom(flat)),
        (
            "2^60 items of a dictionary",
            lambda layout: (
                layout.mini_block_layout.dictionary.CopyFrom(flat),
                setattr(layout.mini_block_layout, "num_dictionary_items", 1 << 60),
            ),
        ),
        ("2^40 buffers", lambda layout: setattr(layout.mini_block_layout, "num_buffers", 1 << 40)),
        (
            "a constant that is too short",
            lambda layout: layout.constant_layout.CopyFrom(encodings.ConstantLayout(inline_value=b"x", layers=[1])),
        ),
        (
            "values of 2^31 bits one by one",
            lambda layout: layout.full_zip_layout.CopyFrom(
                encodings.FullZipLayout(bits_per_value=1 << 31, num_items=9, value_compression=flat, layers=[1])
            ),
        ),
        (
            "symbols of 200 bytes",
            values(
                fsst=encodings.Fsst(
                    symbol_table=b"\xc8" * 2312,
                    values=encodings.CompressiveEncoding(variable=encodings.Variable(offsets=flat)),
                )
            ),
        ),
        (
            "a bomb of 16 GiB",
            values(general=encodings.General(compression=encodings.BufferCompression(scheme=2), values=flat)),
        ),
    ):
        yield name, with_layout(data, change)


def bomb(num_bytes):
    """A zstd frame of zeros: 16 KiB for a gibibyte."""
    return pa.compress(bytes(num_bytes), codec="zstd", asbytes=True)


# --------------------------------------------------------------------------------------------------------------- tests


def check(work):
    """Raises an error of ours, soon, and without much memory."""
    gc.collect()
    forget_most_memory()
    before, start = most_memory(), time.process_time()
    with pytest.raises(LanceError):
        work()
    assert time.process_time() - start < MAX_SECONDS
    assert most_memory() - before < MAX_BYTES


@pytest.fixture(scope="module")
def original():
    """A data file with an int64 column ``x`` of 5,000 different values, without checksums."""
    uri = "memory://hostile"
    lance_core.write_dataset(pa.table({"x": [i * 7919 % 5003 for i in range(5000)]}), uri)
    store = memory_store(uri)
    (info,) = store.list("data")
    data = store.get(info.path)
    start, size = struct.unpack("<QQ", data[-56:-40])
    assert data[start + size - 8 : start + size] == b"LNCcrc32"
    descriptor = struct.unpack("<QQ", data[-72:-56])
    return rebuilt(data, descriptor_place=descriptor)


@pytest.fixture(scope="module")
def bad_files(original):
    return list(data_files(original))


def named(cases):
    return [pytest.param(value, id=name) for name, value in cases]


@pytest.mark.parametrize("data", named(manifests()))
def test_manifests(data):
    uri = f"memory://hostile-{next(NUMBERS)}"
    lance_core.write_dataset(pa.table({"x": [1, 2, 3]}), uri)
    memory_store(uri).put(manifest_path(2, ManifestNaming.V2), data)
    check(lambda: lance_core.dataset(uri).to_table(with_row_id=True))
    assert lance_core.dataset(uri, version=1).count_rows() == 3


@pytest.mark.parametrize("data", named(transactions()))
def test_transactions(data):
    check(lambda: decode_transaction(data))


@pytest.mark.parametrize("data", named(refs()))
def test_refs(data):
    check(lambda: decode_tag(data, "x"))


@pytest.mark.parametrize("data", named(deletions()))
def test_deletion_files(data):
    file = DeletionFile(file_type=DeletionFileType.ARROW_ARRAY, read_version=1, id=1, num_deleted_rows=3)
    check(lambda: decode_deletions(data, file, physical_rows=100))


@pytest.mark.parametrize("data", named(bitmaps()))
def test_bitmaps(data):
    file = DeletionFile(file_type=DeletionFileType.BITMAP, read_version=1, id=1, num_deleted_rows=3)
    check(lambda: decode_deletions(data, file, physical_rows=100))


class Memory:
    """A file in memory."""

    def __init__(self, data):
        self._buffer = pa.py_buffer(data)
        self.size = len(data)

    def read_ranges(self, ranges):
        assert all(0 <= start <= end <= self.size for start, end in ranges), "read outside the file"
        return [self._buffer.slice(start, end - start) for start, end in ranges]

    def close(self):
        pass


def read(data):
    reader = DataFileReader(Memory(data), path="x.lance")
    schema = Schema.from_arrow(pa.schema([("x", pa.int64())]))
    for batch in reader.scan(schema, {0: 0}, start=0, end=reader.num_rows, batch_size=1000):
        batch.validate(full=True)
    reader.take(schema, {0: 0}, np.array([0, 4999]))


def test_the_original_is_good(original):
    read(original)


DATA_FILES = 40


@pytest.mark.parametrize("number", range(DATA_FILES))
def test_data_files(bad_files, number):
    assert len(bad_files) == DATA_FILES
    check(lambda: read(bad_files[number][1]))


def test_a_zstd_bomb_in_a_file(monkeypatch):
    """What decompresses to more than is allowed is refused; the limits are asked once for each process."""
    uri = f"memory://hostile-{next(NUMBERS)}"
    lance_core.write_dataset(pa.table({"x": [f"{i}" + "a" * 400 for i in range(20_000)]}), uri)
    assert lance_core.dataset(uri).count_rows() == 20_000
    monkeypatch.setenv("LANCE_CORE_MAX_DECOMPRESSED_BYTES", "1000")
    limits.cache_clear()
    try:
        with pytest.raises(UnsupportedError, match="LANCE_CORE_MAX_DECOMPRESSED_BYTES"):
            lance_core.dataset(uri).to_table()
    finally:
        monkeypatch.undo()
        limits.cache_clear()
    assert lance_core.dataset(uri).to_table().num_rows == 20_000


@pytest.mark.parametrize("text", ["", "0", "-1", "many", "1e9"])
def test_limits_are_numbers(monkeypatch, text):
    monkeypatch.setenv("LANCE_CORE_MAX_FIELDS", text)
    limits.cache_clear()
    try:
        with pytest.raises(InvalidInputError, match="LANCE_CORE_MAX_FIELDS"):
            limits()
    finally:
        monkeypatch.undo()
        limits.cache_clear()


def test_defaults_can_be_seen():
    assert limits() == Limits()
