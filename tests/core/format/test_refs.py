import json
from datetime import UTC, datetime

import pytest

from lance_core.errors import CorruptDataError, InvalidInputError
from lance_core.format.refs import Branch, Tag, check_tag_name, decode_branch, decode_tag, encode_tag

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
    assert list(content) == ["branch", "version", "createdAt", "updatedAt", "manifestSize", "metadata"]
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
    assert decode_branch(data, "b") == Branch(name="b", parent_branch=None, parent_version=4)


@pytest.mark.parametrize("name", ["v1", "1", "main", "a.b-c_D", "x" * 200])
def test_good_names(name):
    check_tag_name(name)


@pytest.mark.parametrize(
    "name", ["", ".a", "a..b", "a.lock", "a/b", "a b", "ü", "a\\b", "a\0", "x" * 201, "a.", "%2e%2e", "a\n", "٣"]
)
def test_bad_names(name):
    with pytest.raises(InvalidInputError):
        check_tag_name(name)
