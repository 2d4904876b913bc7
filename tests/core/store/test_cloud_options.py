"""Settings of Google Cloud and Azure: names that users know, values that make no sense, whose credentials are used."""

import json
import sys

import pytest

from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.store.cloud.azure import AzureContainer
from lance_core.store.cloud.azure_options import options_of_host, parse_azure_options
from lance_core.store.cloud.google import GoogleBucket
from lance_core.store.cloud.google_options import parse_google_options
from lance_core.store.cloud.s3_options import parse_s3_options
from lance_core.store.open import open_store

PARSERS = {"s3": parse_s3_options, "gs": parse_google_options, "az": parse_azure_options}
CONNECTION = "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=k==;EndpointSuffix=core.chinacloudapi.cn"
REFRESH = {"type": "authorized_user", "client_id": "i", "client_secret": "s", "refresh_token": "r"}


@pytest.fixture(autouse=True)
def _environment(monkeypatch, tmp_path):
    """No settings of Google Cloud and Azure but those of a test."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)


@pytest.mark.parametrize(
    ("service", "options", "expected"),
    [
        ("az", {"AZURE_STORAGE_ACCOUNT_NAME": "a", "account_key": "k"}, {"account_name": "a", "account_key": "k"}),
        ("az", {"azure_storage_sas_key": "s"}, {"sas_token": "s"}),
        ("az", {"azure_storage_sas_token": "s"}, {"sas_token": "s"}),
        ("az", {"access_key": "k", "azure_storage_tenant_id": "t"}, {"account_key": "k", "tenant_id": "t"}),
        ("az", {"azure_client_id": "c", "azure_authority_id": "t"}, {"client_id": "c", "tenant_id": "t"}),
        ("az", {"use_emulator": "true", "azure_use_azure_cli": "0"}, {"use_emulator": True, "use_azure_cli": False}),
        ("az", {"azure_identity_endpoint": "https://x"}, {"msi_endpoint": "https://x"}),
        ("az", {"anon": "true"}, {"anon": True}),
        ("az", {"account_host": "a.blob.core.chinacloudapi.cn"}, {"endpoint": "https://a.blob.core.chinacloudapi.cn"}),
        ("az", {"connection_string": "UseDevelopmentStorage=true"}, {"use_emulator": True}),
        (
            "az",
            {"connection_string": CONNECTION},
            {"account_name": "a", "account_key": "k==", "endpoint": "https://a.blob.core.chinacloudapi.cn"},
        ),
        ("gs", {"google_service_account": "/key.json"}, {"service_account": "/key.json"}),
        ("gs", {"google_service_account_path": "/key.json"}, {"service_account": "/key.json"}),
        ("gs", {"GOOGLE_SERVICE_ACCOUNT_KEY": "{}"}, {"service_account_key": "{}"}),
        ("gs", {"google_application_credentials": "/adc.json"}, {"application_credentials": "/adc.json"}),
        ("gs", {"google_storage_token": "t"}, {"bearer_token": "t"}),
        ("gs", {"token": "anon", "project": "p"}, {"skip_signature": True, "project": "p"}),
        ("gs", {"token": "/key.json"}, {"application_credentials": "/key.json"}),
        ("gs", {"token": {"type": "x"}}, {"service_account_key": '{"type": "x"}'}),
        ("gs", {"token": "google_default"}, {}),
        ("gs", {"endpoint_url": "https://x"}, {"base_url": "https://x"}),
        ("s3", {"key": "k", "secret": "s"}, {"access_key_id": "k", "secret_access_key": "s"}),
        ("s3", {"anon": "true"}, {"skip_signature": True}),
        ("s3", {"aws_request_payer": "true", "s3_express": "1"}, {"request_payer": True, "s3_express": True}),
    ],
)
def test_options_have_the_names_of_other_tools(service, options, expected):
    parse = PARSERS[service]
    default, parsed = parse({}), parse(options)
    names = [name for name in parsed.__dataclass_fields__ if getattr(parsed, name) != getattr(default, name)]
    assert {name: getattr(parsed, name) for name in names} == expected


@pytest.mark.parametrize("parse", PARSERS.values(), ids=PARSERS)
def test_all_services_share_the_options_of_clients(parse):
    parsed = parse({"proxy_url": "http://p:1", "timeout": "2m", "connect_timeout": "500ms", "client_max_retries": "3"})
    config = parsed.client_config()
    assert config["proxy_url"] == "http://p:1"
    assert config["read_timeout"].total_seconds() == 120
    assert config["connect_timeout"].total_seconds() == 0.5
    assert parsed.retry_config()["max_retries"] == 3


@pytest.mark.parametrize(
    ("service", "options", "match"),
    [
        ("az", {"account_key": "hidden", "azure_storage_account_key": "hidden2"}, "twice"),
        ("az", {"endpoint": "127.0.0.1"}, "http"),
        ("az", {"endpoint": "http://127.0.0.1"}, "allow_http"),
        ("az", {"connection_string": "AccountKey=hidden"}, "AccountName"),
        (
            "az",
            {"account_nam": "a"},
            "'account_nam'. Did you mean 'account_name'\\? The options of Azure are: account_key",
        ),
        ("az", {"aws_region": "a"}, "unknown storage option 'aws_region'"),
        ("gs", {"service_account_key": "hidden"}, "JSON"),
        ("gs", {"token": "anon", "skip_signature": "false"}, "twice"),
        ("gs", {"endpoint_url": "http://127.0.0.1"}, "allow_http"),
        ("gs", {"requester_pays": "true"}, "'project'"),
        (
            "gs",
            {"consistency": "md5"},
            "unknown storage option 'consistency'.* The options of Google Cloud Storage are",
        ),
    ],
)
def test_options_that_make_no_sense(service, options, match):
    with pytest.raises(InvalidInputError, match=match) as caught:
        PARSERS[service](options)
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("service", ["gs", "az"])
def test_secrets_stay_secret(service):
    options = {"az": {"account_key": "hidden", "sas_token": "hidden"}, "gs": {"token": {"private_key": "hidden"}}}
    assert "hidden" not in repr(PARSERS[service](options[service]))
    assert "hidden" not in repr(open_store(f"{service}://bucket/t", options[service]))


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("", {}),
        ("a.dfs.core.windows.net", {"account_name": "a"}),
        ("a.blob.core.windows.net", {"account_name": "a"}),
        (
            "a.dfs.core.chinacloudapi.cn",
            {"account_name": "a", "endpoint": "https://a.blob.core.chinacloudapi.cn"},
        ),
        ("onelake.dfs.fabric.microsoft.com", {"account_name": "onelake", "use_fabric_endpoint": "true"}),
    ],
)
def test_addresses_may_name_the_account(host, expected):
    assert options_of_host(host, {"anon": "true"}) == {**expected, "anon": "true"}


def test_an_address_and_options_name_one_account():
    with pytest.raises(InvalidInputError, match="'a'"):
        open_store("abfss://c@a.dfs.core.windows.net/t", {"account_name": "b"})


# ------------------------------------------------------------------------------------------------------- credentials


def google(**options):
    return GoogleBucket(name="b", options=parse_google_options(options)).connect()


def container(**options):
    return AzureContainer(name="c", options=parse_azure_options({"account_name": "a", **options})).connect()


def test_google_credentials_are_found_in_files(tmp_path, monkeypatch):
    file = tmp_path / "credentials.json"
    file.write_text(json.dumps(REFRESH))
    assert google(application_credentials=str(file)).credential_provider is None
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    assert google().credential_provider is None
    with pytest.raises(InvalidInputError, match=r"cannot be read from .*missing\.json"):
        google(token=str(tmp_path / "missing.json"))


def test_google_credentials_of_other_kinds_need_google_auth(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "google.auth", None)
    file = tmp_path / "credentials.json"
    file.write_text(json.dumps({"type": "external_account"}))
    with pytest.raises(UnsupportedError, match="'external_account' need google-auth"):
        google(application_credentials=str(file))


def test_anonymous_readers_ask_nobody_for_credentials():
    assert google(token="anon").config["bearer_token"] == "anonymous"  # noqa: S105, S106 none
    assert container(anon="true").config["skip_signature"] == "true"


def test_default_credentials_of_azure_need_azure_identity(monkeypatch):
    monkeypatch.setitem(sys.modules, "azure.identity", None)
    with pytest.raises(UnsupportedError, match="azure-identity"):
        container(anon="false")
    assert container(anon="false", account_key="a2V5").credential_provider is None


def test_a_requester_pays_by_project():
    store = google(token="anon", requester_pays="true", project="p")  # noqa: S106 none
    assert store.client_options["default_headers"] == {"x-goog-user-project": b"p"}
