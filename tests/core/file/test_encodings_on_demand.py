"""Files whose fields ask for encodings: they read back, and the same rows always give the same bytes."""

import numpy as np
import pyarrow as pa
import pytest

from lance_core.file.write import writer as writer_module

pytestmark = pytest.mark.slow

N = 2000
RNG = np.random.default_rng(1)
TEXTS = [f"{'some words again and again ' * (one % 4)}{one * 7919 % 10_007}" for one in range(N)]
ARRAYS = {
    "numbers": pa.array(RNG.integers(0, 1000, N)),
    "floats": pa.array(np.cumsum(RNG.random(N)).astype(np.float32), mask=RNG.random(N) < 0.1),
    "flags": pa.array(RNG.random(N) < 0.1),
    "texts": pa.array([None if one % 11 == 0 else text for one, text in enumerate(TEXTS)]),
    "long": pa.array([text * 9 for text in TEXTS], pa.large_string()),
    "lists": pa.array([None if one % 9 == 0 else TEXTS[one : one + one % 4] for one in range(N)]),
    "vectors": pa.FixedSizeListArray.from_arrays(pa.array(RNG.random(N * 80, np.float32)), 80),
    "decimals": pa.array(RNG.integers(0, 99, N)).cast(pa.decimal128(20, 0)),
}
ASKED = [
    {},
    {"compression": "none"},
    {"compression": "lz4", "bss": "on"},
    {"compression": "zstd", "compression-level": "5"},
    {"compression": "fsst"},
    {"structural-encoding": "fullzip"},
    {"structural-encoding": "fullzip", "compression": "zstd"},
    {"structural-encoding": "fullzip", "compression": "fsst"},
    {"structural-encoding": "miniblock", "minichunk-size": "100"},
]


def _with(field, asked):
    """A field of which all parts ask for something."""
    kind = field.type
    if pa.types.is_list(kind):
        kind = pa.list_(_with(kind.value_field, asked))
    return pa.field(field.name, kind, metadata={f"lance-encoding:{key}": value for key, value in asked.items()})


def _asking(asked):
    schema = pa.schema([_with(pa.field(name, array.type), asked) for name, array in ARRAYS.items()])
    return pa.table(
        [array.cast(field.type) for array, field in zip(ARRAYS.values(), schema, strict=True)], schema=schema
    )


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("asked", ASKED, ids=str)
def test_whatever_is_asked_for_reads_back(data_file, monkeypatch, asked, version):
    monkeypatch.setattr(writer_module, "PAGE_BYTES", 100_000)
    table = _asking(asked)
    data_file.write(table, max_chunksize=800, version=version)
    assert data_file.read().equals(table)
    rows = [0, 1, 7, 799, 800, 1222, N - 1]
    assert data_file.take(rows).equals(table.take(rows))
    first = data_file.bytes()
    data_file.write(table, max_chunksize=800, version=version)
    assert data_file.bytes() == first


def test_compression_makes_files_smaller(data_file):
    sizes = {}
    for word in ("none", "lz4", "zstd", "fsst"):
        table = _asking({"compression": word}).select(["texts", "long", "lists"])
        data_file.write(table)
        sizes[word] = len(data_file.bytes())
    assert sizes["zstd"] < sizes["lz4"] < sizes["none"] / 2
    assert sizes["fsst"] < sizes["none"] / 2


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_long_texts_stand_in_chunks_only_if_that_makes_them_small(data_file, version):
    rng = np.random.default_rng(3)
    words = np.array(["alpha ", "beta ", "gamma ", "delta "])
    texts = ["".join(words[rng.integers(0, 4, 100)].tolist()) for _ in range(300)]
    noise = [rng.bytes(500) for _ in range(300)]
    data_file.write(pa.table({"c": pa.array(texts)}), version=version)
    assert len(data_file.bytes()) < sum(map(len, texts)) / 3
    data_file.write(pa.table({"c": pa.array(noise, pa.binary())}), version=version)
    assert data_file.read().column("c").to_pylist() == noise
    values = [text.encode() * 40 for text in texts]
    data_file.write(pa.table({"c": pa.array(values, pa.binary())}), version=version)
    assert len(data_file.bytes()) < sum(map(len, values)) / 5
    assert data_file.take([3, 299]).column("c").to_pylist() == [values[3], values[299]]
