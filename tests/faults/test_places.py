"""Places that a table names: which of them are read, and which settings are sent there."""

import pickle
import socket
from dataclasses import replace

import pyarrow as pa
import pytest

import lance_core
from lance_core import DatasetBasePath
from lance_core.errors import CorruptDataError, InvalidInputError, UnsupportedError, UntrustedPlaceError
from lance_core.format.table.base_path import BasePath
from lance_core.format.table.fragment_list import FragmentList
from lance_core.format.table.index_metadata import with_base_id
from lance_core.format.table.manifest import encode_manifest_pieces, index_section_of
from lance_core.format.table.paths import ManifestNaming, manifest_path
from lance_core.scan.blob_places import ExternalBlobs
from lance_core.store import trust
from lance_core.store.addresses import parse_address
from lance_core.store.memory import memory_store
from lance_core.store.trust import PlaceSettings, Use

SECRET = {"access_key_id": "key", "secret_access_key": "hidden"}

NO_ADDRESSES = (
    "",
    " ",
    "a\nb",
    "/a\0b",
    "C:\\tables\\t",
    "\\\\host\\share\\t",
    "//host/share/t",
    "file:////host/share/t",
    "file://host/share/t",
    "zip::file:///etc/x.zip",
    "filecache::s3://bucket/x",
    "simplecache::http://169.254.169.254/x",
    "gs://bucket/x::file:///etc",
    "https://example.com/x::file:///etc",
    "s3://key:secret@bucket/x",
    "https://user:password@example.com/x",
    "abfss://c:password@account.dfs.core.windows.net/x",
    "s3://user@bucket/x",
    "s3://bucket/../x",
    "s3://bucket/a/%2e%2e/x",
    "s3://bucket/a/%252e%252e/x",
    "https://example.com/a%2f..%2fx",
    "gs://bucket/a/./x",
    "s3://bucket//x",
    "s3:///x",
    "s3://bucket/x?endpoint=http://example.com",
    "s3://bucket/x#y",
)
OTHER_SERVICES = (
    "ftp",
    "sftp",
    "ssh",
    "smb",
    "hdfs",
    "webhdfs",
    "zip",
    "tar",
    "reference",
    "git",
    "github",
    "data",
    "hf",
)


@pytest.fixture
def no_network(monkeypatch):
    """Whoever connects to anything fails, and is noticed."""
    tried = []

    def refused(_, address):
        tried.append(address)
        raise AssertionError(address)

    monkeypatch.setattr(socket.socket, "connect", refused)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *name, **_: refused(None, name))
    return tried


@pytest.fixture
def opened(monkeypatch):
    """Places that were opened because a table names them, with the settings sent there."""
    seen = []
    real = trust.open_store

    def recorded(text, options):
        seen.append((text, dict(options)))
        return real(text, options)

    monkeypatch.setattr(trust, "open_store", recorded)
    return seen


def resolve(address, *, dataset, use=Use.TABLE_FILES, **params):
    settings = PlaceSettings(storage_options=SECRET, base_store_params=params.get("params", {}))
    return settings.resolve(parse_address(address), dataset=dataset, use=use)


# ---------------------------------------------------------------------------------------- the decision


@pytest.mark.parametrize("text", NO_ADDRESSES)
def test_no_addresses(text):
    with pytest.raises(InvalidInputError) as error:
        parse_address(text)
    assert "password" not in str(error.value)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("scheme", OTHER_SERVICES)
def test_services_outside_of_the_list_are_not_called(scheme):
    for params in ({}, {f"{scheme}://host/x": {}}):
        with pytest.raises(UnsupportedError, match=scheme):
            resolve(f"{scheme}://host/x", dataset="/tables/t", params=params)


OWN = [
    ("/tables/t", "/elsewhere/t"),
    ("/tables/t", "file:///elsewhere/t"),
    ("file:///tables/t", "/elsewhere"),
    ("s3://bucket/t", "s3://bucket/other"),
    ("s3://bucket/t", "s3a://bucket/other"),
    ("s3+ddb://bucket/t?ddbTableName=x", "s3://bucket/other"),
    ("s3://bucket/t", "s3+ddb://bucket/other?ddbTableName=x"),
    ("az://container/t", "abfs://container/other"),
    ("abfss://c@account.dfs.core.windows.net/t", "abfss://c@account.dfs.core.windows.net/other"),
    ("gs://bucket/t", "gcs://bucket/other"),
    ("https://example.com/t", "https://EXAMPLE.com/other"),
    ("memory://a", "memory://b"),
]
OTHER = [
    ("/tables/t", "s3://bucket/t"),
    ("/tables/t", "http://169.254.169.254/latest/meta-data"),
    ("/tables/t", "memory://t"),
    ("s3://bucket/t", "s3://other/t"),
    ("s3://bucket/t", "s3://bucket2/t"),
    ("s3://bucket/t", "gs://bucket/t"),
    ("s3://bucket/t", "/etc"),
    ("s3://bucket/t", "file:///etc"),
    ("s3://bucket/t", "https://bucket/t"),
    ("az://container/t", "az://other/t"),
    ("abfss://c@account.dfs.core.windows.net/t", "abfss://c@attacker.dfs.core.windows.net/t"),
    ("az://c/t", "abfss://c@attacker.dfs.core.windows.net/t"),
    ("https://example.com/t", "http://example.com/t"),
    ("https://example.com/t", "https://example.com:8443/t"),
    ("https://example.com/t", "https://example.com.attacker.net/t"),
    ("zip://t::s3://bucket/x.zip", "s3://bucket/t"),
    ("memory://a", "/etc"),
]


@pytest.mark.parametrize(("dataset", "address"), OWN)
def test_files_of_the_own_host_or_bucket_are_read_with_the_own_settings(dataset, address):
    assert resolve(address, dataset=dataset) == SECRET


@pytest.mark.parametrize(("dataset", "address"), OTHER)
def test_other_hosts_and_buckets_need_an_entry_and_get_no_settings_but_its_own(dataset, address):
    with pytest.raises(UntrustedPlaceError, match=r"base_store_params=.*LANCE_CORE_BASE_PATHS"):
        resolve(address, dataset=dataset)
    own = {"account_name": "mine"}
    assert resolve(address, dataset=dataset, params={address: own}) == own
    assert resolve(address, dataset=dataset, params={address: {}}) == {}


@pytest.mark.parametrize(("dataset", "address"), OTHER)
def test_listed_places_are_read_without_the_settings_of_others(dataset, address, monkeypatch):
    monkeypatch.setenv("LANCE_CORE_BASE_PATHS", f"/nowhere, {address}")
    for use in Use:
        assert resolve(f"{address}/below", dataset=dataset, use=use) == {}
    for beside in (f"{address}2", f"{address}-x/below"):
        with pytest.raises((UntrustedPlaceError, UnsupportedError), match="LANCE_CORE_BASE_PATHS"):
            resolve(beside, dataset=dataset, params={beside: {}})


@pytest.mark.parametrize(("dataset", "address"), [*OWN, *OTHER])
def test_raw_bytes_need_an_entry_wherever_they_are(dataset, address):
    with pytest.raises(UntrustedPlaceError, match="external blobs"):
        resolve(f"{address.partition('?')[0]}/passwd", dataset=dataset, use=Use.RAW_BYTES)


@pytest.mark.parametrize("dataset", ["/tables/t", "s3://bucket/t", "memory://t"])
def test_the_own_folder_is_always_allowed(dataset, monkeypatch):
    monkeypatch.setenv("LANCE_CORE_BASE_PATHS", "")
    for use in Use:
        assert resolve(f"{dataset}/tree/b", dataset=dataset, use=use) == SECRET
        with pytest.raises(UntrustedPlaceError):
            resolve(f"{dataset}2/x", dataset=dataset, use=use)


def test_the_longest_entry_counts_and_names_are_compared_as_wholes():
    params = {"s3://b": {"region": "a"}, "s3://b/x/y/": {"region": "c"}, "s3://b/x": {}, "s3://bb": {"region": "d"}}
    expected = {"s3://b/q": "a", "s3://b/x/y": "c", "s3://b/x/y/z": "c", "s3://b/xy": "a", "s3://bb/x": "d"}
    for address, region in expected.items():
        assert resolve(address, dataset="/t", params=params) == {"region": region}
    assert resolve("s3://b/x/z", dataset="s3://b/t", params=params) == SECRET
    assert resolve("s3://b/x/z", dataset="/t", params=params) == {}


def test_local_paths_are_decided_about_as_they_are_opened():
    params = {"/data/images": {}}
    for text in ("/data/images/../images/a", "file:///data/images/%61", "file:///data//images/a"):
        assert parse_address(text).text == "/data/images/a"
        assert resolve(text, dataset="/t", use=Use.RAW_BYTES, params=params) == SECRET
    for text in ("/data/images/../../etc/a", "file:///data/images/%2e%2e/%2e%2e/etc/a", "/data/images2/a"):
        with pytest.raises(UntrustedPlaceError):
            resolve(text, dataset="/t", use=Use.RAW_BYTES, params=params)


def test_objects_are_opened_under_the_name_that_was_decided_about():
    for text, folder, name in (
        ("s3://b/a%2Fc%20d", "s3://b/a", "c d"),
        ("s3://b/k", "s3://b", "k"),
        ("file:///a/my%20f.bin", "/a", "my f.bin"),
        ("/k", "/", "k"),
        ("gs://b/a/c%20d", "gs://b/a", "c d"),
        ("memory://far/x", "memory://far", "x"),
    ):
        place, found = parse_address(text).split()
        assert (place.text, found) == (folder, name)
    for text in ("s3://b", "memory://x", "/"):
        with pytest.raises(InvalidInputError):
            parse_address(text).split()
    for path in ("../x", "/etc/passwd", "a/../../x", "", "a\\..\\x"):
        with pytest.raises(InvalidInputError):
            parse_address("/data/images").joined(path)


# ---------------------------------------------------------------------------------------- external blobs

BLOB_WAYS = {
    "read_blobs": lambda dataset: dataset.read_blobs("b", indices=[0])[0][1],
    "take_blobs": lambda dataset: dataset.take_blobs("b", indices=[0])[0].read(),
    "ranges": lambda dataset: dataset.read_blob_ranges("b", [(0, 0, 6)], selector="indices")[0][2],
    "scan": lambda dataset: dataset.to_table(blob_handling="all_binary")["b"][0].as_py(),
}


def blob_table(uri, address, monkeypatch):
    """A table with one external blob, whatever its address."""
    monkeypatch.setattr(ExternalBlobs, "locate", lambda _, uri: (0, uri))
    schema = pa.schema([lance_core.blob_field("b")])
    lance_core.write_dataset(pa.table([lance_core.blob_array([address])], schema=schema), uri)


@pytest.mark.parametrize("way", BLOB_WAYS)
def test_external_blobs_need_to_be_allowed(tmp_path, monkeypatch, way):
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "f.bin").write_bytes(b"secret")
    address = f"file://{tmp_path}/far/f.bin"
    blob_table(tmp_path / "t", address, monkeypatch)
    read = BLOB_WAYS[way]
    with pytest.raises(UntrustedPlaceError, match=r"base_store_params=.*/far'"):
        read(lance_core.dataset(tmp_path / "t"))
    for trusted in (f"{tmp_path}/far", f"file://{tmp_path}", address):
        opened = lance_core.dataset(tmp_path / "t", base_store_params={trusted: {}})
        assert read(opened) == read(pickle.loads(pickle.dumps(opened))) == read(opened.reopened()) == b"secret"  # noqa: S301
    monkeypatch.setenv("LANCE_CORE_BASE_PATHS", str(tmp_path / "far"))
    assert read(lance_core.dataset(tmp_path / "t")) == b"secret"
    for listed in ("", str(tmp_path / "fa"), "s3://bucket"):
        monkeypatch.setenv("LANCE_CORE_BASE_PATHS", listed)
        with pytest.raises(UntrustedPlaceError, match="LANCE_CORE_BASE_PATHS"):
            read(lance_core.dataset(tmp_path / "t", base_store_params={address: {}}))


@pytest.mark.parametrize(
    "address",
    [
        "file:///etc/passwd",
        "/etc/passwd",
        "../../etc/passwd",
        "{t}/../victim",
        "file://{t}/../victim",
        "file://{t}/%2e%2e/victim",
        "s3://other-bucket/x",
        "http://169.254.169.254/latest/meta-data/iam",
        "https://user:password@example.com/x",
        "memory://victim/x",
        "zip://x::file:///etc/x.zip",
        "filecache::file:///etc/passwd",
        "reference://x",
        "ftp://example.com/x",
        "C:\\victim",
        "~/victim",
        "passwd",
        "s3+ddb://b/x?ddbTableName=t",
        "gs://bucket/x::file:///etc/passwd",
    ],
)
def test_hostile_addresses_of_blobs_open_nothing(tmp_path, monkeypatch, no_network, opened, address):
    (tmp_path / "victim").write_bytes(b"secret")
    memory_store("memory://victim").put("x", b"secret")
    monkeypatch.chdir(tmp_path)
    blob_table(tmp_path / "t", address.format(t=tmp_path / "t"), monkeypatch)
    dataset = lance_core.dataset(tmp_path / "t", storage_options=SECRET)
    for read in BLOB_WAYS.values():
        with pytest.raises((InvalidInputError, UnsupportedError)):
            read(dataset)
    assert not opened
    assert not no_network


def test_blobs_below_base_paths_need_to_be_allowed_like_others(tmp_path, opened):
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "my f.bin").write_bytes(b"secret")
    base = DatasetBasePath(f"file://{tmp_path}/far", "far")
    schema = pa.schema([lance_core.blob_field("b")])
    table = pa.table([lance_core.blob_array([f"file://{tmp_path}/far/my%20f.bin"])], schema=schema)
    written = lance_core.write_dataset(table, tmp_path / "t", initial_bases=[base])
    assert written.to_table()["b"].to_pylist()[0]["blob_uri"] == "my f.bin"
    assert written.read_blobs("b", indices=[0])[0][1] == b"secret"  # the caller has just named the place himself
    opened.clear()
    with pytest.raises(UntrustedPlaceError, match="base_store_params"):
        lance_core.dataset(tmp_path / "t").read_blobs("b", indices=[0])
    assert not opened
    trusting = lance_core.dataset(tmp_path / "t", base_store_params={base.path: {}})
    assert trusting.read_blobs("b", indices=[0])[0][1] == b"secret"


# ---------------------------------------------------------------------------------------- data, deletions and indices

SECTIONS = ("data", "deletions", "index")
BASE_ADDRESSES = (
    "s3://other-bucket/t",
    "http://169.254.169.254/latest",
    "https://user:password@example.com/t",
    "memory://victim",
    "zip://t::/tmp/x.zip",
    "sftp://host/t",
    "gs://bucket/t",
    "abfss://c@attacker.dfs.core.windows.net/t",
)


def put_below_base(root, section, base):
    """A second version whose data file, deletion file or index lies below a base path."""
    first = lance_core.dataset(root).snapshot.manifest
    (fragment,) = first.fragments
    changes = {}
    if section == "data":
        fragment = replace(fragment, files=tuple(replace(file, base_id=7) for file in fragment.files))
    elif section == "deletions":
        fragment = replace(fragment, deletion_file=replace(fragment.deletion_file, base_id=7))
    else:
        changes["index_section"] = index_section_of(tuple(with_base_id(one, 7) for one in first.indices))
    version = first.version + 1
    fragments = FragmentList.of([fragment])
    manifest = replace(first, version=version, fragments=fragments, base_paths=(base,), **changes)
    (root / manifest_path(version, ManifestNaming.V2)).write_bytes(b"".join(encode_manifest_pieces(manifest)))


def read_all(dataset):
    return dataset.to_table(filter="x > 1", columns=["x"]).num_rows


@pytest.fixture
def table(tmp_path):
    root = tmp_path / "t"
    dataset = lance_core.write_dataset(pa.table({"x": [1, 2, 3, 4]}), root)
    dataset.create_scalar_index("x", "ZONEMAP")
    dataset.delete("x = 1")
    return root


@pytest.mark.parametrize("section", SECTIONS)
@pytest.mark.parametrize("address", BASE_ADDRESSES)
def test_base_paths_elsewhere_open_nothing(table, no_network, opened, section, address):
    put_below_base(table, section, BasePath(id=7, path=address, is_dataset_root=True))
    dataset = lance_core.dataset(table, storage_options=SECRET)
    with pytest.raises((InvalidInputError, UnsupportedError)):
        read_all(dataset)
    assert not opened
    assert not no_network
    assert not dataset.verify(level="full").is_ok


@pytest.mark.parametrize("section", SECTIONS)
def test_base_paths_on_the_own_disk_are_read(table, tmp_path, monkeypatch, section):
    elsewhere = tmp_path / "elsewhere"
    lance_core.dataset(table).deep_clone(elsewhere)
    put_below_base(table, section, BasePath(id=7, path=elsewhere.as_uri(), is_dataset_root=True))
    assert read_all(lance_core.dataset(table)) == 3
    monkeypatch.setenv("LANCE_CORE_BASE_PATHS", "")
    with pytest.raises(UntrustedPlaceError, match="LANCE_CORE_BASE_PATHS"):
        read_all(lance_core.dataset(table))
    monkeypatch.setenv("LANCE_CORE_BASE_PATHS", str(elsewhere))
    assert read_all(lance_core.dataset(table)) == 3


def test_a_copied_branch_does_not_need_the_place_it_was_copied_from(tmp_path):
    store = memory_store("memory://copied-branch")
    source = lance_core.write_dataset(pa.table({"x": [1, 2]}), "memory://copied-branch")
    source.create_branch("b")
    for folder in ("data", "_versions", "_transactions", "_refs", "tree"):
        for info in store.list(folder):
            path = tmp_path / "t" / info.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(store.get(info.path))
    branch = lance_core.dataset(tmp_path / "t", branch="b")
    assert branch.to_table().num_rows == 2
    next((tmp_path / "t" / "data").iterdir()).unlink()
    with pytest.raises(UntrustedPlaceError, match="memory://copied-branch"):
        lance_core.dataset(tmp_path / "t", branch="b").to_table()


# ---------------------------------------------------------------------------------------- places that the caller names


def test_places_that_the_caller_names_are_written_and_read(tmp_path, opened):
    base = DatasetBasePath("memory://named-by-the-caller", "m")
    written = lance_core.write_dataset(
        pa.table({"x": [1]}), tmp_path / "t", initial_bases=[base], target_bases=["m"], storage_options=SECRET
    )
    assert written.to_table().num_rows == 1
    assert opened
    assert not any(options for _, options in opened)
    more = lance_core.write_dataset(pa.table({"x": [2]}), written, mode="append", target_bases=["m"])
    assert more.to_table().num_rows == 2
    with pytest.raises(UntrustedPlaceError, match="memory://named-by-the-caller"):
        lance_core.dataset(tmp_path / "t").to_table()
    added = lance_core.write_dataset(pa.table({"x": [1]}), tmp_path / "u")
    added.add_bases([DatasetBasePath("memory://added-by-the-caller", "m")])
    lance_core.write_dataset(pa.table({"x": [2]}), added, mode="append", target_bases=["m"])
    assert added.reopened().to_table().num_rows == 2


def test_a_clone_is_read_with_the_settings_of_its_source(tmp_path):
    source = lance_core.write_dataset(pa.table({"x": [1]}), "memory://source-of-a-clone", storage_options=SECRET)
    clone = source.shallow_clone(tmp_path / "clone", storage_options={"durable": "true"})
    assert clone.to_table().num_rows == 1
    assert clone.base_store_params == {"memory://source-of-a-clone": SECRET}
    with pytest.raises(UntrustedPlaceError, match="memory://source-of-a-clone"):
        lance_core.dataset(tmp_path / "clone").to_table()


def test_buckets_that_the_caller_names_need_settings_of_their_own(tmp_path, no_network, opened):
    base = DatasetBasePath("s3://cold/t", "cold")
    with pytest.raises(UntrustedPlaceError, match=r"base_store_params=.*s3://cold/t"):
        lance_core.write_dataset(
            pa.table({"x": [1]}), tmp_path / "t", initial_bases=[base], target_bases=["cold"], storage_options=SECRET
        )
    assert not opened
    assert not no_network


def test_base_paths_with_credentials_are_not_written(tmp_path):
    dataset = lance_core.write_dataset(pa.table({"x": [1]}), tmp_path / "t")
    for path in ("s3://key:secret@bucket/x", "abfss://c:secret@account.dfs.core.windows.net/x"):
        with pytest.raises(InvalidInputError, match="storage options") as error:
            dataset.add_bases([DatasetBasePath(path)])
        assert "secret" not in str(error.value)
    assert lance_core.dataset(tmp_path / "t").version == 1


def test_unlisted_base_ids_are_damage(tmp_path, monkeypatch):
    monkeypatch.setattr(ExternalBlobs, "locate", lambda _, uri: (9, uri))
    schema = pa.schema([lance_core.blob_field("b")])
    lance_core.write_dataset(pa.table([lance_core.blob_array(["x"])], schema=schema), tmp_path / "t")
    with pytest.raises(CorruptDataError, match="base path 9"):
        lance_core.dataset(tmp_path / "t").read_blobs("b", indices=[0])
