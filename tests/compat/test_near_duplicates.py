"""Searches of near-duplicate texts: both libraries find the same rows at the same distances, in either's index."""

import random
from pathlib import Path

import lance
import lance.query as their_queries
import numpy as np
import pyarrow as pa
import pytest

import lance_core
import lance_core.query as our_queries
from lance_core.errors import CorruptDataError, InvalidInputError, UnsupportedError
from lance_core.format.index.minhash import MinHashOptions, decode_minhash_details, encode_minhash_details
from lance_core.index.text.signatures import Signer

pytestmark = pytest.mark.filterwarnings("ignore::lance_core.errors.IndexCoverageWarning")

WORDS = [f"w{number}" for number in range(50)] + ["Straße", "naïve", "The", "of", "running"]
BASES = [" ".join(random.Random(seed).choices(WORDS, k=30 + 20 * seed)) for seed in range(4)]
SHORT = ["", "   \n", None, "one", "one two", "One, two three", "the", "x" * 60, "x" * 30 + " y z"]
QUERIES = [*BASES, "one two three", "one two", "one", "", "nothing like this"]


def varied(rng: random.Random, text: str) -> str:
    words = text.split()
    for _ in range(rng.randrange(6)):
        words[rng.randrange(len(words))] = rng.choice(WORDS)
    return " ".join(words)


def rows(seed: int, count: int, first: int = 0, kind=None) -> pa.Table:
    rng = random.Random(seed)
    texts = [rng.choice(SHORT) if rng.random() < 0.1 else varied(rng, rng.choice(BASES)) for _ in range(count)]
    return pa.table({"id": range(first, first + count), "t": pa.array(texts, kind or pa.string())})


def found(library, queries, uri, text, **options):
    table = library.dataset(uri).to_table(
        columns=["id", "_distance"], nearest=queries.MinHashQuery(text, "t"), **options
    )
    assert table["_distance"].to_pylist() == sorted(table["_distance"].to_pylist())
    return dict(zip(table["id"].to_pylist(), table["_distance"].to_pylist(), strict=True))


def same(uri, limit=1000, **options):
    total = 0
    for text in QUERIES:
        here = found(lance_core, our_queries, uri, text, limit=limit, **options)
        there = found(lance, their_queries, uri, text, limit=limit, **options)
        assert here == pytest.approx(there, abs=1e-7)
        total += len(here)
    assert total


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("builder", [lance, lance_core])
def test_duplicates_are_the_same_through_the_life_of_a_table(tmp_path: Path, builder, stable):
    uri = str(tmp_path / "t")
    lance.write_dataset(rows(1, 150), uri, max_rows_per_file=60, enable_stable_row_ids=stable)
    builder.dataset(uri).create_scalar_index("t", "MINHASHLSH")
    same(uri)
    assert lance_core.verify(uri, level="indices").is_ok
    lance.dataset(uri).delete("id % 7 = 3")
    lance_core.write_dataset(rows(2, 60, 1000), uri, mode="append")
    same(uri)
    same(uri, fast_search=True)
    if not stable:  # pylance 14.0.2 also finds rows of stable ids by texts that they had before an update
        lance.dataset(uri).update({"t": "'one two three'"}, where="id % 13 = 5")
        same(uri)
    same(uri, filter="id > 100", prefilter=True)
    builder.dataset(uri).optimize.optimize_indices(num_indices_to_merge=0)
    same(uri)
    builder.dataset(uri).optimize.optimize_indices(num_indices_to_merge=5)
    same(uri)
    builder.dataset(uri).optimize.compact_files()
    same(uri)
    assert lance_core.verify(uri, level="indices").is_ok


def test_a_limit_comes_before_a_filter_unless_it_is_a_prefilter(tmp_path: Path):
    uri = str(tmp_path / "t")
    lance.write_dataset(pa.table({"id": range(60), "t": [varied(random.Random(n), BASES[0]) for n in range(60)]}), uri)
    lance_core.dataset(uri).create_scalar_index("t", "MINHASHLSH")
    asked = {}
    for library, queries in ((lance_core, our_queries), (lance, their_queries)):
        dataset, query = library.dataset(uri), queries.MinHashQuery(BASES[0], "t")
        asked[library] = [
            dataset.to_table(columns=["_distance"], nearest=query, **options)["_distance"].to_pylist()
            for options in ({}, {"limit": 3}, {"limit": 4, "filter": "id > 30", "prefilter": True})
        ]
        asked[library].append(dataset.to_table(nearest=query, limit=4, filter="id < 0").num_rows)
        asked[library].append(dataset.scanner(nearest=query, limit=2).to_table().schema.names)
    assert asked[lance_core] == asked[lance]
    assert len(asked[lance_core][0]) == 10


@pytest.mark.parametrize("kind", [pa.large_string(), pa.string()])
def test_signatures_and_bands_are_those_of_pylance(tmp_path: Path, kind):
    table = rows(3, 700, kind=kind)  # more than a page of band keys
    content = []
    for library in (lance, lance_core):
        uri = str(tmp_path / library.__name__)
        lance.write_dataset(table, uri)
        library.dataset(uri).create_scalar_index("t", "MINHASHLSH")
        (folder,) = Path(uri, "_indices").iterdir()
        files = [lance.file.LanceFileReader(str(folder / name)) for name in ("signatures.lance", "bands.lance")]
        content.append([(file.read_all().to_table(), file.metadata().schema.metadata) for file in files])
    for (theirs, their_metadata), (ours, our_metadata) in zip(*content, strict=True):
        assert ours.to_pylist() == theirs.to_pylist()
        assert our_metadata == their_metadata
    assert content[0][1][0].num_rows > 4096


def test_keys_that_do_not_fit_in_memory_are_sorted_in_files(tmp_path: Path):
    uris = [str(tmp_path / name) for name in ("small", "large")]
    bands = []
    for uri, memory in zip(uris, (10_000, None), strict=True):
        lance.write_dataset(rows(4, 400), uri, max_rows_per_file=90)
        lance_core.dataset(uri).create_scalar_index("t", "MINHASHLSH", max_memory_bytes=memory)
        (folder,) = Path(uri, "_indices").iterdir()
        bands.append(lance.file.LanceFileReader(str(folder / "bands.lance")).read_all().to_table().to_pylist())
        same(uri)
    assert bands[0] == bands[1]


def test_signatures_have_the_numbers_of_the_specification():
    signer = Signer(MinHashOptions(num_hashes=4, num_bands=2, shingle_size=2))
    long, short = signer.signature("The quick brown fox"), signer.signature("Fox")
    assert long is not None
    assert short is not None
    assert long.tolist() == [[0xB00F, 0x59D6, 0x511A, 0xCD2C]]
    assert short.tolist() == [[0x2970, 0xD6DB, 0x65F8, 0xADFC]]
    assert signer.band_keys(long).tolist() == [[0x00F30F3501D458EA, 0x01AEC5DF28D04915]]
    assert signer.band_keys(short).tolist() == [[0x003CF6E803312ECA, 0x017C5504FBC83F36]]
    assert [signer.signature(text) for text in ("", "  \n")] == [None, None]


def test_a_text_of_many_shingles_is_compared_in_parts(monkeypatch):
    text = " ".join(f"word{number}" for number in range(3000))
    whole = Signer(MinHashOptions()).signature(text)
    monkeypatch.setattr("lance_core.index.text.signatures._HASHES_AT_ONCE", 128 * 100)
    signer = Signer(MinHashOptions())
    assert np.array_equal(signer.signature(text), whole)
    many = [(number, row) for number, part in signer.signatures(pa.array([text, "a b c", None, text])) for row in part]
    assert len(many) == 3


def test_damaged_details_are_refused():
    data = encode_minhash_details(MinHashOptions())
    assert decode_minhash_details(data.hex().encode(), path="p") == MinHashOptions()
    for broken in (data[:-3], data[:5], b"", b"\xff" * 4, data + b"\x28\x01"):
        with pytest.raises((CorruptDataError, UnsupportedError)):
            decode_minhash_details(broken.hex().encode(), path="p")


def test_searches_without_an_index_and_other_columns_are_refused(tmp_path: Path):
    uri = str(tmp_path / "t")
    dataset = lance_core.write_dataset(rows(5, 20), uri)
    with pytest.raises(InvalidInputError, match="no index of near duplicates"):
        dataset.to_table(nearest=our_queries.MinHashQuery("a", "t"))
    with pytest.raises(UnsupportedError, match="int64"):
        dataset.create_scalar_index("id", "MINHASHLSH")
    with pytest.raises(InvalidInputError, match="a query needs text"):
        our_queries.MinHashQuery(3, "t")
    dataset.create_scalar_index("t", "MINHASHLSH")
    builder = lance_core.scanner.ScannerBuilder(dataset).minhash_search(our_queries.MinHashQuery(BASES[1], "t"))
    assert builder.to_scanner().to_table().num_rows
    assert "near duplicates" in dataset.scanner(nearest=our_queries.MinHashQuery("a", "t")).explain_plan()
