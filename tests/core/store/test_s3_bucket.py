"""How settings reach the service: addresses of buckets, and whose credentials are used."""

import sys

import pytest

from lance_core.errors import UnsupportedError
from lance_core.store.cloud.s3 import S3Bucket
from lance_core.store.cloud.s3_options import parse_s3_options

KEYS = {"access_key_id": "name", "secret_access_key": "hidden"}
ELSEWHERE = {"endpoint": "https://store.example:9000", "region": "here"}


@pytest.fixture(autouse=True)
def _environment(monkeypatch, tmp_path):
    """No settings of AWS but those of a test."""
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))


@pytest.fixture
def profiles(tmp_path):
    sections = [f"[{name}]\naws_access_key_id = id_{name}\naws_secret_access_key = s\n" for name in ("default", "team")]
    (tmp_path / "credentials").write_text("\n".join(sections))


def config(name="bucket", **options):
    return S3Bucket(name=name, options=parse_s3_options(options)).connect().config


@pytest.mark.parametrize(
    ("name", "options", "endpoint", "virtual"),
    [
        ("bucket", {}, None, True),
        ("with.dots", {}, None, False),
        ("bucket", ELSEWHERE, "https://store.example:9000", False),
        (
            "bucket",
            {**ELSEWHERE, "virtual_hosted_style_request": "true"},
            "https://bucket.store.example:9000",
            True,
        ),
    ],
)
def test_the_bucket_is_part_of_the_host_at_aws_and_where_asked(name, options, endpoint, virtual):
    found = config(name, **KEYS, **options)
    assert found.get("endpoint") == endpoint
    assert found["virtual_hosted_style_request"] == str(virtual).lower()


def test_an_endpoint_of_the_environment_is_asked_by_path(monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9000")
    assert config(**KEYS)["virtual_hosted_style_request"] == "false"


def credentials(**options):
    provider = S3Bucket(name="b", options=parse_s3_options(options)).connect().credential_provider
    return None if provider is None else provider()["access_key_id"]


def test_without_profiles_obstore_finds_the_credentials():
    assert credentials() is None


@pytest.mark.usefixtures("profiles")
def test_profiles_are_used_unless_something_else_is_given(monkeypatch):
    assert credentials() == "id_default"
    assert credentials(profile="team") == "id_team"
    assert credentials(**KEYS) is None
    assert credentials(skip_signature="true") is None
    monkeypatch.setenv("AWS_PROFILE", "team")
    assert credentials() == "id_team"
    monkeypatch.delenv("AWS_PROFILE")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of the environment")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of the environment")
    assert credentials() is None


@pytest.mark.usefixtures("profiles")
def test_a_profile_without_boto3_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(UnsupportedError, match=r"'team' needs boto3.*lance-dagster\[boto3\]"):
        credentials(profile="team")
    assert credentials() is None
