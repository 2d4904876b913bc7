"""Compression profiles: all writers of a table follow the one that it has."""

import re

import pyarrow as pa
import pytest

import lance_core
from lance_core.encoding.profiles import PROFILE_KEY
from lance_core.errors import InvalidInputError
from lance_core.file import LanceFileReader

CODECS = {"fast": set(), "balanced": {"lz4"}, "small": {"zstd"}}


def lines(start=0, count=3000):
    numbers = range(start, start + count)
    texts = [f"2026-01-01 00:00:{number % 60:02} INFO Gateway request {number * 7919 % 3001}" for number in numbers]
    return pa.table({"id": pa.array(numbers, pa.int64()), "line": texts})


def codecs(dataset, fragment=-1):
    """Codecs of the pages of strings of a fragment."""
    found = set()
    for file in dataset.get_fragments()[fragment].data_files():
        for column in LanceFileReader(f"{dataset.uri}/data/{file.path}").metadata().columns:
            encodings = " ".join(page.encoding for page in column.pages)
            found |= set(re.findall(r"General\((\w+), Variable", encodings))
    return found


@pytest.fixture(name="uri")
def a_place(tmp_path):
    return str(tmp_path / "lines.lance")


@pytest.mark.parametrize("profile", CODECS)
def test_a_profile_chooses_the_codec_of_strings(uri, profile):
    dataset = lance_core.write_dataset(lines(), uri, compression_profile=profile)
    assert codecs(dataset) == CODECS[profile]
    assert dataset.to_table().equals(lines())


def test_the_default_is_balanced_and_leaves_no_trace(uri):
    dataset = lance_core.write_dataset(lines(), uri)
    assert codecs(dataset) == CODECS["balanced"]
    assert not dataset.schema.metadata


def test_each_change_of_a_table_follows_its_profile(uri):
    dataset = lance_core.write_dataset(lines(), uri, compression_profile="small")
    dataset.insert(lines(3000))
    assert codecs(dataset) == CODECS["small"]
    dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(lines(2000, 5000))
    assert codecs(dataset) == CODECS["small"]
    dataset.update({"line": "line || ' and was served'"}, where="id < 2000")
    assert codecs(dataset) == CODECS["small"]
    dataset.add_columns({"other": "line || ' once more'"})
    assert codecs(dataset) == CODECS["small"]
    dataset.optimize.compact_files()
    assert len(dataset.get_fragments()) == 1
    assert codecs(dataset) == CODECS["small"]
    assert dataset.count_rows() == 7000


def test_an_overwrite_keeps_the_profile_unless_it_names_another(uri):
    lance_core.write_dataset(lines(), uri, compression_profile="small")
    assert codecs(lance_core.write_dataset(lines(), uri, mode="overwrite")) == CODECS["small"]
    assert codecs(lance_core.write_dataset(lines(), uri, mode="overwrite", compression_profile="fast")) == set()


def test_rows_are_not_added_by_another_profile(uri):
    dataset = lance_core.write_dataset(lines(), uri, compression_profile="small")
    with pytest.raises(InvalidInputError, match="is 'fast', but that of the table is 'small'"):
        lance_core.write_dataset(lines(), dataset, mode="append", compression_profile="fast")
    assert len(list(dataset.versions())) == 1
    dataset.update_schema_metadata({PROFILE_KEY: "fast"})
    assert codecs(lance_core.write_dataset(lines(), dataset, mode="append", compression_profile="fast")) == set()


def test_what_a_field_asks_for_goes_first(uri):
    schema = lines().schema
    schema = schema.set(1, schema.field(1).with_metadata({"lance-encoding:compression": "zstd"}))
    dataset = lance_core.write_dataset(lines().cast(schema), uri, compression_profile="fast")
    assert codecs(dataset) == {"zstd"}


@pytest.mark.parametrize("mode", ["create", "overwrite", "append"])
def test_an_unknown_profile_is_refused(uri, mode):
    with pytest.raises(InvalidInputError, match="'tiny'; allowed: fast, balanced, small"):
        lance_core.write_dataset(lines(), uri, mode=mode, compression_profile="tiny")


def test_an_unknown_profile_of_a_table_is_refused_when_it_is_written(uri):
    dataset = lance_core.write_dataset(lines(), uri)
    dataset.update_schema_metadata({PROFILE_KEY: "of the future"})
    assert dataset.to_table().equals(lines())
    with pytest.raises(InvalidInputError, match="allowed: fast, balanced, small"):
        dataset.insert(lines())
