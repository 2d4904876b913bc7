"""An encoding is one object: a toy is written and read everywhere, as docs/contributing/add-an-encoding.md tells."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

# --- the toy begins
import lance_core
from lance_core._proto import encodings_v2_1_pb2 as pb
from lance_core.common.frozen import frozen
from lance_core.encoding import registry
from lance_core.encoding.codecs import flat
from lance_core.encoding.codecs.codec import Codec, Scalar
from lance_core.encoding.kernels import chunk_counts
from lance_core.encoding.values import FixedValues
from lance_core.format.file.encodings import MESSAGES, Encoding, Flat, Message
from lance_core.format.file.page_layout import decode_layout
from lance_core.reports.describe import describe


@frozen
class Masked(Encoding):
    """Integers whose bits are those of the values where the mask has none, and their opposites where it has."""

    bits: int
    mask: int


# The toy borrows the message of another encoding.
MESSAGE = Message(
    Masked,
    lambda found, _: Masked(found.bits_per_value, found.start),
    lambda own: pb.Range(bits_per_value=own.bits, start=own.mask),
)


def decode(encoding, chunks):
    stored = flat.decode(Flat(encoding.bits), chunks).data
    return FixedValues(stored ^ stored.dtype.type(encoding.mask))


def decode_at(encoding, chunks, chunk_of, index):
    stored = flat.decode_at(Flat(encoding.bits), chunks, chunk_of, index).data
    return FixedValues(stored ^ stored.dtype.type(encoding.mask))


def decode_one(encoding):
    width = encoding.bits // 8
    read_stored = flat.read_width(width)

    def read(memory, start, size, count, index):
        stored = read_stored(memory, start, size, count, index)
        return (int.from_bytes(stored, "little") ^ encoding.mask).to_bytes(width, "little")

    return Scalar(read, ("words", width))


def encode(values, _chunk_bytes, max_values):
    if not isinstance(values, FixedValues) or values.data.dtype not in (np.uint32, np.uint64):
        return None
    encoding = Masked(flat.bits_of(values), 0x5A5A5A5A)
    stored = FixedValues(values.data ^ values.data.dtype.type(encoding.mask))
    return encoding, flat.encode_chunks(stored, chunk_counts(len(values), max_values))


MASKED = Codec(serves=Masked, decode=decode, decode_at=decode_at, decode_one=decode_one, encode=encode, name="masked")
# --- the toy ends

N = 20_000
RNG = np.random.default_rng(8)
NUMBERS = RNG.integers(-(1 << 62), 1 << 62, N)
COLUMNS = {
    "numbers": pa.array(NUMBERS),
    "nulls": pa.array(NUMBERS, mask=RNG.random(N) < 0.2),
    "small": pa.array(NUMBERS.astype(np.float32)),
    "lists": pa.ListArray.from_arrays(pa.array(np.arange(0, N + 1, 4, np.int32)), pa.array(NUMBERS)).take(
        pa.array(np.arange(N) % (N // 4))
    ),
    "texts": pa.array([f"text {one}" for one in NUMBERS.tolist()]),
}
PARTS = ["decode_at", "decode_one"]


def asking(name, array):
    """A field that asks for the toy, in the part that has the values."""
    metadata = {"lance-encoding:compression": "masked"}
    if not pa.types.is_list(array.type):
        return pa.field(name, array.type, metadata=metadata)
    return pa.field(name, pa.list_(pa.field("item", array.type.value_type, metadata=metadata)))


TABLE = pa.table(COLUMNS, schema=pa.schema([asking(name, array) for name, array in COLUMNS.items()]))


@pytest.fixture
def register(monkeypatch):
    def register(codec):
        monkeypatch.setitem(MESSAGES, "range", MESSAGE)
        monkeypatch.setitem(registry.CODECS, Masked, codec)

    decode_layout.cache_clear()
    yield register
    decode_layout.cache_clear()


def test_the_toy_has_at_most_sixty_lines():
    _, toy, _ = (
        Path(__file__).read_text().replace("--- the toy ends", "--- the toy begins").split("# --- the toy begins\n")
    )
    assert len(toy.splitlines()) <= 60


@pytest.mark.parametrize("left_out", [[], *([part] for part in PARTS), PARTS], ids=str)
@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_tables_of_the_toy_read_back(tmp_path, register, version, left_out):
    """Also if it can do no more than to decode whole chunks."""
    register(replace(MASKED, **dict.fromkeys(left_out)))
    dataset = lance_core.write_dataset(TABLE, tmp_path, data_storage_version=version)
    assert describe(tmp_path, measure=False).count("Masked") == 4
    assert dataset.to_table().cast(TABLE.schema).equals(TABLE)
    for rows in ([777], [4, 4096, 19_999], RNG.integers(0, N, 100).tolist()):
        assert dataset.take(rows).cast(TABLE.schema).equals(TABLE.take(rows))
    wanted = TABLE.filter(pa.array(NUMBERS > 1 << 61))
    assert dataset.to_table(filter=f"numbers > {1 << 61}").cast(TABLE.schema).equals(wanted)


def test_one_row_takes_the_scalar_path_and_many_the_vector_path(tmp_path, register):
    called = []

    def counting(part):
        function = getattr(MASKED, part)
        return lambda *given: called.append(part) or function(*given)

    register(replace(MASKED, **{part: counting(part) for part in ("decode", *PARTS)}))
    dataset = lance_core.write_dataset(TABLE.select(["numbers"]), tmp_path)
    for work, part in (
        (lambda: dataset.take([5]), "decode_one"),
        (lambda: dataset.take(RNG.permutation(N)[:500].tolist()), "decode_at"),
        (dataset.to_table, "decode"),
    ):
        called.clear()
        work()
        assert {*called} == {part}
