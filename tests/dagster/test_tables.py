"""Where tables live."""

from __future__ import annotations

import os

import dagster as dg
import pytest

from lance_core.errors import InvalidInputError
from lance_dagster.tables import Tables, absolute_root, table_path


def test_only_the_last_part_has_the_suffix():
    assert table_path(["silver", "flights", "daily"]) == "silver/flights/daily.lance"


@pytest.mark.parametrize(
    "part", ["", ".", "..", "a/b", "a\\b", ".hidden", "x.lance", "X.LANCE", "a b", "a%2e", "a?b", "a#b", "a\0b", "ä"]
)
def test_hostile_parts_are_refused(part):
    with pytest.raises(InvalidInputError, match="lance/uri"):
        table_path(["ok", part])


def test_a_very_long_part_is_refused():
    with pytest.raises(InvalidInputError):
        table_path(["a" * 129])


def test_different_keys_never_share_a_table():
    keys = [["a", "b"], ["a_b"], ["a.b"], ["a-b"], ["b", "a"]]
    assert len({table_path(key) for key in keys}) == len(keys)


def test_a_local_root_becomes_absolute_and_a_uri_stays():
    assert absolute_root("data") == os.path.join(os.getcwd(), "data")  # noqa: PTH109,PTH118 - the text is compared
    assert absolute_root("s3://bucket/x/") == "s3://bucket/x"


def test_an_empty_root_is_refused():
    with pytest.raises(InvalidInputError, match="root"):
        absolute_root(" ")


def test_a_missing_table_is_none(root):
    tables = Tables(root=root)
    assert tables.find(tables.uri(dg.AssetKey("nothing"))) is None


@pytest.mark.parametrize("end", ["", "/", "/tree/dev"])
def test_the_asset_of_an_address(root, end):
    tables = Tables(root=root)
    key = dg.AssetKey(["silver", "users"])
    assert tables.asset_key(tables.uri(key) + end) == key


@pytest.mark.parametrize("path", ["x", "a.lance/data/1.lance", "../other/a.lance"])
def test_other_addresses_belong_to_no_asset(root, path):
    tables = Tables(root=root + "/below")
    assert tables.asset_key(f"{root}/{path}") is None
    assert tables.asset_key(f"{root}/below/x/data") is None
