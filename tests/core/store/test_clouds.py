"""What is special about Azure and Google Cloud: conditions, answers that get lost, names of options."""

import pytest

import lance_core
from lance_core.errors import InvalidInputError, NotFoundError, UnsafeStoreError
from lance_core.store.fsspec_options import file_system_arguments, without_secrets
from lance_core.store.open import open_store
from lance_core.table.commit import commit
from lance_core.table.snapshot import list_versions, open_snapshot
from lance_core.testing.tables import append, create, read_rows

pytestmark = pytest.mark.slow

AZURE = {"azure_storage_account_name": "account", "azure_storage_account_key": "a2V5a2V5a2V5a2V5", "allow_http": "true"}


@pytest.fixture(params=["az", "gs"])
def place(request, objects):
    """Address and options of a dataset."""
    if request.param == "gs":
        return "gs://bucket/t.lance", {"endpoint_url": objects.endpoint, "token": "anon"}
    return "az://bucket/t.lance", {**AZURE, "azure_endpoint": f"{objects.endpoint}/account"}


def test_commits(place):
    store = open_store(*place)
    commit(store, create(store, [1, 2]))
    commit(store, append(store, [3], read_version=1, uuid="second"))
    assert read_rows(open_snapshot(open_store(*place))) == [1, 2, 3]


def test_a_service_that_ignores_conditions_gets_no_commit(place, objects):
    objects.ignores_conditions = True
    address, options = place
    store = open_store(address.replace("t.lance", "unsafe.lance"), options)
    with pytest.raises(UnsafeStoreError, match="ignores the condition"):
        commit(store, create(store, [1, 2]))
    assert list_versions(store) == []
    assert not [key for key in objects.objects if ".tmp_" in key or "_versions" in key]


def test_a_lost_answer_makes_one_version(place, objects):
    """The package repeats the request, and learns that the object exists: it is its own."""
    store = open_store(*place)
    commit(store, create(store, [1, 2]))
    objects.loses_answers = 1
    assert commit(store, append(store, [3], read_version=1, uuid="second")).version == 2
    assert objects.loses_answers == 0
    assert read_rows(open_snapshot(store)) == [1, 2, 3]


@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")  # what Azure's package does
def test_large_objects(place):
    store = open_store(*place)
    writer = store.writer("data/large")
    parts = [bytes([number]) * (3 << 20) for number in range(6)]
    for part in parts:
        writer.write(part)
    assert writer.commit() == 18 << 20
    assert store.get("data/large") == b"".join(parts)
    dropped = store.writer("data/dropped")
    dropped.write(bytes(18 << 20))
    dropped.abort()
    with pytest.raises(NotFoundError):
        store.reader("data/dropped")


def test_secrets_are_not_shown(place, monkeypatch):
    address, options = place
    key = "c2VjcmV0LWtleS1oZXJl"
    secret = {"account_key": key} if address.startswith("az") else {"token": {"private_key": key}}
    if address.startswith("az"):
        del options["azure_storage_account_key"]
    store = open_store(address, {**options, **secret})
    assert key not in repr(store)
    for error in (ValueError(f"bad {key}"), RuntimeError(f"bad {key}"), TypeError(f"bad {key}")):

        def fail(*_, error=error, **__):
            raise error

        monkeypatch.setattr("fsspec.url_to_fs", fail)
        with pytest.raises((InvalidInputError, OSError)) as caught:
            store.get("x")
        assert key not in str(caught.value)
        assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("scheme", "options", "expected"),
    [
        ("az", {"AZURE_STORAGE_ACCOUNT_NAME": "a", "account_key": "k"}, {"account_name": "a", "account_key": "k"}),
        ("abfs", {"azure_storage_sas_key": "s"}, {"sas_token": "s"}),
        ("az", {"access_key": "k", "azure_storage_tenant_id": "t"}, {"account_key": "k", "tenant_id": "t"}),
        ("gs", {"google_service_account": "/key.json"}, {"token": "/key.json"}),
        ("gs", {"google_service_account_key": '{"type": "x"}'}, {"token": {"type": "x"}}),
        ("gs", {"token": "anon", "project": "p"}, {"token": "anon", "project": "p"}),
        ("sftp", {"Password": "p"}, {"Password": "p"}),
    ],
)
def test_options_have_the_names_of_pylance(scheme, options, expected):
    assert file_system_arguments(scheme, options) == expected


@pytest.mark.parametrize(
    ("scheme", "options", "match"),
    [
        ("az", {"account_key": "one", "azure_storage_account_key": "two"}, "twice"),
        ("gs", {"service_account_key": "secret"}, "JSON"),
        ("az", {"endpoint": "127.0.0.1"}, "http"),
        ("az", {"endpoint": "http://127.0.0.1"}, "allow_http"),
        ("az", {"endpoint": "https://127.0.0.1", "account_name": "a"}, "account_key"),
    ],
)
def test_options_that_make_no_sense(scheme, options, match):
    with pytest.raises(InvalidInputError, match=match) as caught:
        file_system_arguments(scheme, options)
    assert not any(secret in str(caught.value) for secret in ("one", "two", "secret"))


def test_secrets_are_blotted_out():
    connection = "AccountName=abc;AccountKey=hidden==;BlobEndpoint=x"
    options = {"token": {"private_key": "private!"}, "connection_string": connection, "short": "a"}
    text = without_secrets(f"a {connection} and hidden== or private!", options)
    assert text == "a *** and *** or ***"


def test_datasets(place):
    import pyarrow as pa  # noqa: PLC0415 only here

    rows = pa.table({"a": [1, 2, 3]})
    address, options = place
    lance_core.write_dataset(rows, address, storage_options=options)
    dataset = lance_core.write_dataset(rows, address, mode="append", storage_options=options)
    dataset.tags.create("second", 2)
    assert lance_core.dataset(address, "second", storage_options=options).count_rows() == 6
