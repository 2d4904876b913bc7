"""Google Cloud and Azure beside S3: conditions, answers that get lost, large objects, objects of all names."""

import multiprocessing
import os
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import LanceError, NotFoundError, UnsafeStoreError, UnsupportedError
from lance_core.store.cloud.cloud_store import PART_SIZE
from lance_core.store.open import open_store
from lance_core.store.range_reader import TAIL_SIZE

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("short_pauses")]

CONDITIONS = {"s3": "If-None-Match", "gs": "x-goog-if-generation-match", "az": "If-None-Match"}


@pytest.fixture
def store(cloud):
    store = open_store(f"{cloud.uri}/t.lance", cloud.storage_options)
    store.put_if_absent("first", b"so that the service is trusted")
    cloud.requests()
    return store


def test_datasets(cloud):
    rows = pa.table({"a": [1, 2, 3]})
    address, options = f"{cloud.uri}/folder/t.lance", cloud.storage_options
    lance_core.write_dataset(rows, address, storage_options=options)
    dataset = lance_core.write_dataset(rows, address, mode="append", storage_options=options)
    dataset.tags.create("second", 2)
    dataset.delete("a = 1")
    dataset.tags.delete("second")
    again = lance_core.dataset(address, storage_options=options)
    assert again.to_table() == pa.concat_tables([rows.slice(1)] * 2)
    assert again.verify(level="full").is_ok


@pytest.mark.parametrize("name", ["plain", "with space", "ü/ß", "100%", "a+b=c&d", "~x!'()"])
def test_names_of_all_kinds(store, name):
    path = f"d/{name}"
    store.put(path, b"content")
    assert store.get(path) == b"content"
    assert store.put_if_absent(f"{path}.2", b"")
    assert sorted(info.path for info in store.list("d")) == [path, f"{path}.2"]
    store.delete([path, f"{path}.2"])
    assert list(store.list("d")) == []


def test_addresses_are_percent_encoded(cloud):
    encoded = open_store(f"{cloud.uri}/a%20b/t.lance", cloud.storage_options)
    encoded.put("f", b"content")
    assert open_store(f"{cloud.uri}/a b", cloud.storage_options).get("t.lance/f") == b"content"


@pytest.mark.parametrize("size", [0, 1, TAIL_SIZE - 1, TAIL_SIZE, TAIL_SIZE + 1, 3 * TAIL_SIZE])
@pytest.mark.parametrize("believed", [None, 1, TAIL_SIZE, 4 * TAIL_SIZE])
def test_ends_of_objects(store, size, believed):
    """Whatever the size was believed to be, the bytes are those that are there."""
    data = os.urandom(size)
    store.put("f", data)
    reader = store.reader("f") if believed is None else store.sized_reader("f", believed, most_bytes=0)
    assert reader.size == size
    ranges = [(0, size), (size // 2, size)]
    assert [buffer.to_pybytes() for buffer in reader.read_ranges(ranges)] == [data, data[size // 2 :]]


@pytest.mark.parametrize("cloud", ["google", "azure"], indirect=True)
def test_listings_have_pages(store):
    names = [f"{number:04d}" for number in range(1100)]
    for name in names:
        store.put(f"d/{name}", b"x")
    store.put("d/sub/f", b"x")
    assert sorted(store.names("d")) == [*names, "sub"]
    assert len(list(store.list("d"))) == 1101
    assert store.first_names("d", 3) == names[:3]


def test_what_is_gone_can_be_deleted(store):
    paths = [f"d/{number}" for number in range(5)]
    for path in paths:
        store.put(path, b"x")
    store.delete(["d/never there", *paths, "d/neither"])
    store.delete(["d/never there"])
    assert store.names("d") == []


def test_large_objects_appear_as_a_whole(store):
    data = os.urandom(PART_SIZE * 2 + 1000)
    writer = store.writer("large")
    writer.write(data[:PART_SIZE])
    writer.write(data[PART_SIZE:])
    with pytest.raises(NotFoundError):
        store.get("large")
    assert writer.commit() == len(data)
    assert store.get("large") == data


def test_aborted_uploads_leave_no_object(store):
    writer = store.writer("large")
    writer.write(bytes(PART_SIZE * 2 + 1))
    writer.abort()
    with pytest.raises(NotFoundError):
        store.reader("large")


def test_aborted_uploads_to_google_are_dropped(google):
    store = open_store(f"{google.uri}/t.lance", google.storage_options)
    writer = store.writer("large")
    writer.write(bytes(PART_SIZE * 2 + 1))
    assert google.uploads == 1
    writer.abort()
    assert google.uploads == 0


@pytest.mark.parametrize("mode", ["after-500", "after-drop"])
def test_the_end_of_an_upload_may_be_told_late(cloud, store, mode):
    """Azure has no upload of that name when the request is repeated; nor has Google Cloud."""
    writer = store.writer("large")
    writer.write(bytes(PART_SIZE + 1))
    kind = cloud.uri.partition("://")[0]
    cloud.fail("PUT" if kind == "az" else "POST", "blocklist" if kind == "az" else "uploadId", mode)
    assert writer.commit() == PART_SIZE + 1
    assert store.reader("large").size == PART_SIZE + 1


@pytest.mark.parametrize("mode", ["before-500", "before-503", "before-drop"])
def test_a_request_without_effect_is_repeated(cloud, store, mode):
    cloud.fail("PUT", "t.lance/v", mode)
    assert store.put_if_absent("v", b"ours")
    assert store.get("v") == b"ours"


@pytest.mark.parametrize("mode", ["after-500", "after-503", "after-drop", "after-409", "after-412"])
def test_an_object_whose_answer_got_lost_is_ours(cloud, store, mode):
    cloud.fail("PUT", "t.lance/v", mode)
    assert store.put_if_absent("v", b"ours")
    assert store.get("v") == b"ours"
    assert not store.put_if_absent("v", b"ours")


@pytest.mark.parametrize("mode", ["before-500", "before-drop", "before-409", "before-412"])
def test_an_object_of_others_is_not_ours(cloud, store, mode):
    store.put("v", b"theirs")
    cloud.fail("PUT", "t.lance/v", mode)
    assert not store.put_if_absent("v", b"ours")
    assert store.get("v") == b"theirs"


def test_an_object_that_exists_is_found_without_a_pause(cloud, store):
    store.put("v", b"theirs")
    cloud.requests()
    assert not store.put_if_absent("v", b"ours")
    assert [method for method, _ in cloud.requests()] == ["PUT", "HEAD"]


def test_a_service_that_ignores_the_condition_is_refused(cloud):
    options = {**cloud.storage_options, "client_max_retries": "1"}  # a connection of its own
    store = open_store(f"{cloud.uri}/t.lance", options)
    store.put("v", b"theirs")
    cloud.fail("PUT", "", "ignore-condition", times=1000)
    with pytest.raises(UnsafeStoreError, match=CONDITIONS[cloud.uri.partition("://")[0]]):
        store.put_if_absent("v", b"ours")
    assert store.get("v") == b"theirs"
    for mode in ("before-501", "ignore-metadata"):
        cloud.fail("PUT", "", mode, times=1000)
        with pytest.raises(UnsafeStoreError):
            store.put_if_absent("w", b"ours")
    assert [info.path for info in open_store(cloud.uri, options).list("t.lance")] == ["t.lance/v"]


def test_errors_are_named(cloud, store):
    with pytest.raises(NotFoundError, match=r"t\.lance/x"):
        store.get("x")
    cloud.fail("GET", "t.lance/x", "before-403")
    with pytest.raises(PermissionError, match=r"t\.lance/x"):
        store.get("x")
    cloud.fail("GET", "t.lance/x", "before-500", times=100)
    once = open_store(f"{cloud.uri}/t.lance", {**cloud.storage_options, "client_max_retries": "0"})
    with pytest.raises(ConnectionError, match=r"t\.lance/x"):
        once.get("x")


def test_a_process_connects_once(cloud, monkeypatch):
    """Whatever is opened below a bucket with the same options, and in whichever thread."""
    options = {**cloud.storage_options, "client_max_retries": "4"}  # a connection of its own
    bucket = open_store(cloud.uri, options).client._bucket
    connects = []
    connect = type(bucket).connect
    monkeypatch.setattr(type(bucket), "connect", lambda self: connects.append(self) or connect(self))
    options["client_max_retries"] = "3"
    rows = pa.table({"a": [1, 2, 3]})
    for name in ("one.lance", "two.lance"):
        lance_core.write_dataset(rows, f"{cloud.uri}/{name}", storage_options=options)
        with ThreadPoolExecutor(4) as pool:
            list(
                pool.map(
                    lambda uri: lance_core.dataset(uri, storage_options=dict(options)).to_table(),
                    [f"{cloud.uri}/{name}"] * 4,
                )
            )
    assert len(connects) == 1


def read_in_child(store, answers):
    try:
        answers.put(store.get("first"))
    except LanceError as error:
        answers.put(error)


def read_in(method, store):
    context = multiprocessing.get_context(method)
    answers = context.Queue()
    child = context.Process(target=read_in_child, args=(store, answers))
    child.start()
    answer = answers.get(timeout=60)
    child.join()
    return answer


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.parametrize("cloud", ["google", "azure"], indirect=True)
def test_processes_may_be_spawned_and_not_forked(store):
    assert isinstance(read_in("fork", store), UnsupportedError)
    assert read_in("spawn", store) == b"so that the service is trusted"
