import json
from datetime import UTC, datetime

import pytest

from lance_core.errors import CorruptDataError, InvalidInputError
from lance_core.format.table.refs import (
    Branch,
    Tag,
    check_branch_name,
    check_tag_name,
    decode_branch,
    decode_tag,
    encode_branch,
    encode_tag,
    is_branch_name,
)

TAG = Tag(
    name="v1",
    version=3,
    manifest_size=99,
    created_at=datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC),
    updated_at=datetime(2026, 1, 2, tzinfo=UTC),
)


def test_round_trip():
    assert decode_tag(encode_tag(TAG), "v1") == TAG


def test_keys_of_the_file():
    content = json.loads(encode_tag(TAG))
    assert list(content) == ["branch", "version", "createdAt", "updatedAt", "manifestSize", "metadata", "checksum"]
    assert content["createdAt"] == "2026-01-02T03:04:05.000678Z"
    assert content["branch"] is None


def test_only_version_and_size_are_needed():
    tag = decode_tag(b'{"version": 7, "manifestSize": 0, "extra": 1, "branch": "main", "createdAt": "soon"}', "x")
    assert tag == Tag(name="x", version=7, manifest_size=0)


def test_nanoseconds_of_other_writers_are_read():
    tag = decode_tag(b'{"version":1,"manifestSize":2,"createdAt":"2026-11-21T07:36:46.455242123Z"}', "x")
    assert tag.created_at == datetime(2026, 11, 21, 7, 36, 46, 455242, tzinfo=UTC)


@pytest.mark.parametrize(
    "data",
    [
        b"", b"[]", b"{", b'{"version": 1}', b'{"version": -1, "manifestSize": 1}', b"\xff", b"[" * 100_000,
        b'{"version": "1", "manifestSize": 1}', b'{"version": true, "manifestSize": 1}',
        b'{"version": 1, "manifestSize": 1, "branch": 5}',
    ],
)  # fmt: skip
def test_anything_else_is_corrupt(data):
    with pytest.raises(CorruptDataError):
        decode_tag(data, "x")


def test_branch():
    data = b'{"parentBranch": null, "parentVersion": 4, "createAt": 1, "manifestSize": 5, "metadata": {}}'
    expected = Branch(name="b", parent_branch=None, parent_version=4, created_at=1, manifest_size=5)
    assert decode_branch(data, "b") == expected
    full = Branch(
        name="b",
        parent_branch="a",
        parent_version=4,
        identifier=((1, "0" * 32), (4, "f" * 32)),
        created_at=7,
        manifest_size=9,
        metadata={"k": "v"},
    )
    assert decode_branch(encode_branch(full), "b") == full
    assert decode_branch(b'{"parentBranch": "main", "parentVersion": 1}', "b").parent_branch is None


@pytest.mark.parametrize(
    "content",
    [
        b'{"parentVersion": "1"}',
        b'{"parentVersion": 1, "parentBranch": 5}',
        b'{"parentVersion": 1, "identifier": []}',
        b'{"parentVersion": 1, "identifier": {"version_mapping": [[1]]}}',
        b'{"parentVersion": 1, "identifier": {"version_mapping": [["a", "b"]]}}',
        b'{"parentVersion": 1, "metadata": {"a": 1}}',
        b'{"parentVersion": 1, "metadata": 5}',
        b"[]",
    ],
)
def test_damaged_branches(content):
    with pytest.raises(CorruptDataError):
        decode_branch(content, "b")


@pytest.mark.parametrize("name", ["a", "feat/a", "a/b.c/d_e-1", "1", "Main"])
def test_names_of_branches(name):
    check_branch_name(name)
    assert is_branch_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "main",
        "/a",
        "a/",
        "a//b",
        "..",
        "a/..",
        "a/../b",
        ".a",
        "a/.b",
        "x.lock",
        "a b",
        "ü",
        "a\\b",
        "a\x00",
        "data",
        "a/_versions",
        "tree/a",
        "a/tree",
        "x" * 201,
    ],
)
def test_names_that_are_refused(name):
    with pytest.raises(InvalidInputError):
        check_branch_name(name)


@pytest.mark.parametrize("name", ["", "..", "a/..", "../a", "/a", "a//b", "a\\b", "a\0"])
def test_names_that_lead_out_of_the_dataset(name):
    assert not is_branch_name(name)


@pytest.mark.parametrize("name", ["v1", "1", "main", "a.b-c_D", "x" * 200])
def test_good_names(name):
    check_tag_name(name)


@pytest.mark.parametrize(
    "name", ["", ".a", "a..b", "a.lock", "a/b", "a b", "ü", "a\\b", "a\0", "x" * 201, "a.", "%2e%2e", "a\n", "٣"]
)
def test_bad_names(name):
    with pytest.raises(InvalidInputError):
        check_tag_name(name)
