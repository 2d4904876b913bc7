"""What is special about S3: requests are counted, fail, and get lost."""

import multiprocessing
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import LanceError, NotFoundError, UnsafeStoreError, UnsupportedError
from lance_core.store.cloud.cloud_store import PART_SIZE
from lance_core.store.cloud.object_client import PARTS_IN_FLIGHT
from lance_core.store.open import open_store
from lance_core.store.range_reader import TAIL_SIZE, WHOLE_BYTES, Deferred, RangeReader
from lance_core.table.snapshot import find_newest, find_versions

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("short_pauses")]


@pytest.fixture
def store(s3):
    store = open_store(f"{s3.uri}/t.lance", s3.storage_options)
    store.put_if_absent("first", b"so that the service is trusted")
    s3.requests()
    return store


def manifests(*versions):
    return [f"_versions/{2**64 - 1 - version:020d}.manifest" for version in versions]


# ----------------------------------------------------------------------------------------------------------- reading


def test_opening_brings_the_end(s3, store):
    data = np.random.default_rng(0).bytes(TAIL_SIZE + 1000)
    store.put("f", data)
    s3.requests()
    reader = store.reader("f")
    assert reader.size == len(data)
    (tail, end) = reader.read_ranges([(1000, len(data)), (len(data) - 3, len(data))])
    assert tail.to_pybytes() == data[1000:]
    assert end.to_pybytes() == data[-3:]
    assert len(s3.requests()) == 1
    (whole,) = reader.read_ranges([(0, len(data))])
    assert whole.to_pybytes() == data
    assert len(s3.requests()) == 1


@pytest.mark.parametrize("believed", [1, 70_000, WHOLE_BYTES])
def test_a_small_object_of_known_size_is_read_whole(s3, store, believed):
    """Whatever the size was believed to be, the bytes are those that are there."""
    data = np.random.default_rng(0).bytes(70_000)
    store.put("f", data)
    s3.requests()
    reader = store.sized_reader("f", believed)
    assert reader.size == len(data)
    ranges = [(3, 70), (69_990, 70_000), (0, 0)]
    assert [buffer.to_pybytes() for buffer in reader.read_ranges(ranges)] == [data[start:end] for start, end in ranges]
    assert len(s3.requests()) == (1 if believed >= len(data) else 2)


def test_a_large_object_of_known_size_brings_its_checksums(s3, store):
    data = bytes(WHOLE_BYTES + 100_000)
    store.put("f", data)
    reader = store.sized_reader("f", len(data))
    s3.requests()
    reader.read_ranges([(len(data) - TAIL_SIZE - len(data) // 1024, len(data))])
    assert s3.requests() == []


def test_a_whole_object_can_be_copied_from(store):
    data = np.random.default_rng(0).bytes(5000)
    store.put("f", data)
    reader = store.sized_reader("f", len(data))
    memory = bytearray(30)
    assert reader.copy_present(memoryview(memory), [(7, 17), (4980, 5000)]) == 2
    assert bytes(memory) == data[7:17] + data[4980:]
    assert reader.mapped.address % 16 == 0


def test_near_ranges_are_read_at_once(s3, store):
    data = np.random.default_rng(0).bytes(3_000_000)
    store.put("f", data)
    reader = store.reader("f")
    s3.requests()
    ranges = [(start, start + 100) for start in (*range(0, 500_000, 10_000), 2_000_000)]
    buffers = reader.read_ranges(ranges)
    assert [buffer.to_pybytes() for buffer in buffers] == [data[start:end] for start, end in ranges]
    assert len(s3.requests()) == 2


def test_what_is_aligned_in_the_object_is_aligned_in_memory(store):
    store.put("f", bytes(1_000_000))
    for buffer in store.reader("f").read_ranges([(4096, 5000), (100, 164), (640_000, 640_008)]):
        assert buffer.size
    starts = [64, 128, 4096, 999_936]
    buffers = store.reader("f").read_ranges([(start, start + 64) for start in starts])
    assert all(buffer.address % 16 == 0 for buffer in buffers)


@pytest.mark.parametrize("is_aligned", [True, False])
def test_a_piece_is_copied_only_to_align_it(is_aligned):
    memory = np.arange(4096, dtype=np.uint8)
    first = -memory.ctypes.data % 64 + (0 if is_aligned else 1)
    piece = memoryview(memory)[first : first + 1024]
    reader = RangeReader(lambda _: Deferred(lambda: [piece]), path="f", size=4096)
    (buffer,) = reader.read_ranges([(128, 1152)])
    assert buffer.to_pybytes() == bytes(piece)
    assert buffer.address % 16 == 0
    assert (buffer.address == memory.ctypes.data + first) is is_aligned


def test_sizes_of_many_objects(s3, store):
    paths = [f"d/{number}" for number in range(40)]
    for number, path in enumerate(paths):
        store.put(path, bytes(number))
    s3.requests()
    assert store.sizes(paths) == list(range(40))
    assert [method for method, _ in s3.requests()] == ["HEAD"] * 40
    with pytest.raises(NotFoundError, match="d/x"):
        store.sizes([*paths, "d/x"])
    assert store.sizes([]) == []


def test_the_service_fails_for_a_while(s3, store):
    store.put("f", b"content")
    s3.fail("GET", "t.lance/f", "before-503", times=2)
    assert store.get("f") == b"content"
    s3.fail("GET", "t.lance/f", "after-drop")
    assert store.reader("f").size == 7


def test_errors_are_named(s3, store):
    with pytest.raises(NotFoundError, match=r"t\.lance/x"):
        store.get("x")
    missing = open_store("s3://no-such-bucket/t", s3.storage_options)
    with pytest.raises(NotFoundError, match="bucket"):
        missing.names("_versions")
    s3.fail("GET", "t.lance/x", "before-403")
    with pytest.raises(PermissionError, match=r"t\.lance/x"):
        store.get("x")
    s3.fail("GET", "t.lance/x", "before-500", times=100)
    once = open_store(f"{s3.uri}/t.lance", {**s3.storage_options, "client_max_retries": "0"})
    with pytest.raises(ConnectionError, match=r"t\.lance/x"):
        once.get("x")


def test_nobody_listens(s3):
    options = {**s3.storage_options, "aws_endpoint": "http://127.0.0.1:1", "client_max_retries": "0"}
    with pytest.raises(ConnectionError):
        open_store(f"{s3.uri}/t.lance", options).get("f")


# ----------------------------------------------------------------------------------------------------------- listing


def test_listings_have_pages(s3, store):
    names = [f"{number:04d}" for number in range(1100)]
    bucket = s3.uri.removeprefix("s3://")
    s3.put_objects(bucket, dict.fromkeys([f"t.lance/d/{name}" for name in names], "x"))
    store.put("d/sub/f", b"x")
    s3.requests()
    assert sorted(store.names("d")) == [*names, "sub"]
    assert len(s3.requests()) == 2
    assert len(list(store.list("d"))) == 1101
    assert store.first_names("d", 3) == names[:3]


def test_the_newest_version_is_the_first_name(s3, store):
    for path in (*manifests(*range(1, 30)), "_versions/.tmp_x", "_versions/d9223372036854775809.manifest"):
        store.put(path, b"")
    s3.requests()
    assert find_newest(store).newest == 29
    assert len(s3.requests()) == 1
    assert len(find_versions(store).numbers) == 29


@pytest.mark.parametrize("count", [3, 40])
def test_the_newest_version_of_the_old_scheme(store, count):
    for version in range(1, count):
        store.put(f"_versions/{version}.manifest", b"")
    assert find_newest(store).newest == count - 1


def test_many_are_deleted_at_once(s3, store):
    paths = [f"d/{number} ü" for number in range(5)]
    for path in paths:
        store.put(path, b"x")
    s3.requests()
    store.delete([*paths, "d/not there"])
    assert [method for method, _ in s3.requests()] == ["POST"]
    assert store.names("d") == []


def test_metadata_of_files_is_found_again(s3):
    """Who opens a table anew reads the ends of its files, but no chunk tables; a file that was replaced is another."""
    uri, options = f"{s3.uri}/t.lance", s3.storage_options
    rows = pa.table({"a": np.random.default_rng(0).integers(0, 1 << 20, 800_000)})
    lance_core.write_dataset(rows, uri, storage_options=options)

    def asked():
        s3.requests()
        assert lance_core.dataset(uri, storage_options=options).take([7, 300_000])["a"].to_pylist() == expected
        return len(s3.requests())

    expected = rows["a"].take([7, 300_000]).to_pylist()
    first = asked()
    assert asked() == first - 1
    other = lance_core.write_dataset(pa.table({"a": rows["a"].to_numpy()[::-1]}), f"{uri}2", storage_options=options)
    expected = other.take([7, 300_000])["a"].to_pylist()
    store = open_store(s3.uri, options)
    (old,), (new,) = [[info.path for info in store.list(f"{name}/data")] for name in ("t.lance", "t.lance2")]
    store.put(old, store.get(new))
    assert asked() == first


# ---------------------------------------------------------------------------------------------------- large objects


def test_large_objects_are_uploaded_in_parts(s3, store):
    data = np.random.default_rng(0).bytes(PART_SIZE * 5 + 1000)
    writer = store.writer("f")
    for start in range(0, len(data), 5_000_000):
        writer.write(data[start : start + 5_000_000])
    with pytest.raises(NotFoundError):
        store.get("f")
    s3.requests()
    assert writer.commit() == len(data)
    writer.abort()
    assert store.get("f") == data
    assert uploads(s3) == 0


def test_a_slow_service_makes_the_writer_wait(s3, store):
    """Memory holds the parts in flight and one that is being filled, however large the object is."""
    part, written = np.random.default_rng(0).bytes(PART_SIZE), []
    s3.fail("PUT", "partNumber", "held", times=1000)

    def write():
        for number in range(8):
            writer.write(part)
            written.append(number)
        return writer.commit()

    with ThreadPoolExecutor(1) as pool:
        writer = store.writer("f")
        done = pool.submit(write)
        parts = []
        while len(parts) < PARTS_IN_FLIGHT:
            parts += [path for method, path in s3.requests() if method == "PUT"]
        time.sleep(0.5)  # for parts that should not come
        parts += [path for method, path in s3.requests() if method == "PUT"]
        assert (len(parts), done.done()) == (PARTS_IN_FLIGHT, False)
        assert len(written) <= PARTS_IN_FLIGHT + 1
        s3.recover()
        assert done.result(60) == 8 * PART_SIZE
    assert store.reader("f").size == 8 * PART_SIZE


def test_small_objects_need_one_request(s3, store):
    writer = store.writer("f")
    writer.write(b"small")
    assert writer.commit() == 5
    assert [method for method, _ in s3.requests()] == ["PUT"]


def test_aborted_uploads_leave_nothing(s3, store):
    writer = store.writer("f")
    writer.write(bytes(PART_SIZE * 2 + 1))
    assert uploads(s3) == 1
    writer.abort()
    writer.abort()
    assert uploads(s3) == 0
    with pytest.raises(NotFoundError):
        store.get("f")


def test_a_part_that_fails_fails_the_object(s3):
    store = open_store(f"{s3.uri}/t.lance", {**s3.storage_options, "client_max_retries": "0"})
    s3.fail("PUT", "partNumber=2", "before-500", times=100)
    writer = store.writer("f")
    with pytest.raises(ConnectionError):
        writer.write(bytes(PART_SIZE * 12))
    writer.abort()
    assert uploads(s3) == 0


@pytest.mark.parametrize("mode", ["after-500", "after-drop"])
def test_the_end_of_an_upload_may_be_told_late(s3, store, mode):
    writer = store.writer("f")
    writer.write(bytes(PART_SIZE + 1))
    s3.fail("POST", "uploadId", mode)
    assert writer.commit() == PART_SIZE + 1
    assert store.reader("f").size == PART_SIZE + 1


def uploads(s3):
    """Unfinished uploads in the bucket."""
    return len(s3.s3_client().list_multipart_uploads(Bucket=s3.uri[len("s3://") :]).get("Uploads", []))


# ------------------------------------------------------------------------------------------------- exclusive creation


@pytest.mark.parametrize("mode", ["before-500", "before-503", "before-drop", "before-409"])
def test_a_request_without_effect_is_repeated(s3, store, mode):
    s3.fail("PUT", "t.lance/v", mode)
    assert store.put_if_absent("v", b"ours")
    assert store.get("v") == b"ours"


@pytest.mark.parametrize("mode", ["after-500", "after-503", "after-drop", "after-409", "after-412"])
def test_an_object_whose_answer_got_lost_is_ours(s3, store, mode):
    s3.fail("PUT", "t.lance/v", mode)
    assert store.put_if_absent("v", b"ours")
    assert store.get("v") == b"ours"
    assert not store.put_if_absent("v", b"ours")


@pytest.mark.parametrize("mode", ["before-500", "before-drop", "before-409", "before-412"])
def test_an_object_of_others_is_not_ours(s3, store, mode):
    store.put("v", b"theirs")
    s3.fail("PUT", "t.lance/v", mode)
    assert not store.put_if_absent("v", b"ours")
    assert store.get("v") == b"theirs"


def test_no_answer_at_all_is_told(s3, store):
    once = open_store(store.uri, {**s3.storage_options, "client_max_retries": "0"})
    once.put_if_absent("first/of/this/connection", b"")
    s3.fail("PUT", "t.lance/v", "after-drop", times=100)
    with pytest.raises(ConnectionError):
        once.put_if_absent("v", b"ours")
    s3.fail("PUT", "t.lance/w", "before-412")
    with pytest.raises(ConnectionError, match="gone"):
        store.put_if_absent("w", b"ours")


def test_a_service_that_ignores_the_condition_is_refused(s3):
    options = {**s3.storage_options, "client_max_retries": "1"}  # a connection of its own
    store = open_store(f"{s3.uri}/t.lance", options)
    store.put("v", b"theirs")
    s3.fail("PUT", "", "ignore-condition", times=1000)
    for _ in range(2):
        with pytest.raises(UnsafeStoreError, match="If-None-Match"):
            store.put_if_absent("v", b"ours")
    assert store.get("v") == b"theirs"
    for mode in ("before-501", "ignore-metadata"):
        s3.fail("PUT", "", mode, times=1000)
        with pytest.raises(UnsafeStoreError):
            store.put_if_absent("w", b"ours")
    assert [info.path for info in open_store(s3.uri, options).list("t.lance")] == ["t.lance/v"]


def test_a_service_is_put_to_the_test_once(s3):
    store = open_store(f"{s3.uri}/t.lance", {**s3.storage_options, "client_max_retries": "2"})
    assert store.put_if_absent("v", b"")
    assert [method for method, _ in s3.requests()] == ["PUT", "PUT", "HEAD", "POST", "PUT"]
    again = open_store(f"{s3.uri}/other", {**s3.storage_options, "client_max_retries": "2"})
    assert again.put_if_absent("v", b"")
    assert len(s3.requests()) == 1


def test_the_test_of_the_service_runs_beside_the_first_upload(s3):
    store = open_store(f"{s3.uri}/t.lance", {**s3.storage_options, "client_max_retries": "3"})
    writer = store.writer("f")
    asked = []
    while len(asked) < 4:
        asked += [method for method, _ in s3.requests()]
    assert asked == ["PUT", "PUT", "HEAD", "POST"]
    writer.write(b"small")
    writer.commit()
    assert store.put_if_absent("v", b"")
    assert [method for method, _ in s3.requests()] == ["PUT", "PUT"]


def test_a_test_of_the_service_that_failed_beside_an_upload_is_repeated(s3):
    store = open_store(f"{s3.uri}/t.lance", {**s3.storage_options, "client_max_retries": "0"})
    s3.fail("PUT", ".tmp_", "before-500")
    store.writer("f").abort()
    assert store.put_if_absent("v", b"")
    methods = [method for method, _ in s3.requests()]
    assert methods == ["PUT", "POST", "PUT", "PUT", "HEAD", "POST", "PUT"]


# -------------------------------------------------------------------------------------------------------- processes


def read_in_child(store, answers):
    try:
        answers.put(store.get("f"))
    except LanceError as error:
        answers.put(error)


def read_in(context, store):
    answers = context.Queue()
    child = context.Process(target=read_in_child, args=(store, answers))
    child.start()
    answer = answers.get(timeout=60)
    child.join()
    return answer


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_process_is_told_to_be_spawned(store):
    """The threads of the connection do not survive a fork: requests would wait forever."""
    store.put("f", b"content")
    refused = read_in(multiprocessing.get_context("fork"), store)
    assert isinstance(refused, UnsupportedError)
    assert "'spawn' or 'forkserver'" in str(refused)
    assert store.get("f") == b"content"


def test_stores_cross_to_spawned_processes(store):
    store.put("f", b"content")
    assert read_in(multiprocessing.get_context("spawn"), store) == b"content"


def test_a_process_may_fork_before_its_first_request(s3):
    """So do Spark's workers."""
    command = (
        "import multiprocessing, sys, lance_core.store.cloud.object_client\n"
        "from lance_core.store.open import open_store\n"
        "store = open_store(sys.argv[1], dict(one.split('=', 1) for one in sys.argv[2:]))\n"
        "child = multiprocessing.get_context('fork').Process(target=store.put, args=('f', b'content'))\n"
        "child.start(); child.join(); assert child.exitcode == 0 and store.get('f') == b'content'"
    )
    options = [f"{name}={value}" for name, value in s3.storage_options.items()]
    subprocess.run([sys.executable, "-c", command, s3.uri, *options], check=True, timeout=60)


def test_threads_may_share_a_store(store):
    store.put("f", bytes(range(256)))
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda _: store.get("f"), range(100))) == {bytes(range(256))}


def test_missing_obstore_is_named(s3, monkeypatch):
    monkeypatch.setitem(sys.modules, "obstore", None)
    store = open_store(s3.uri, {**s3.storage_options, "client_max_retries": "9"})
    with pytest.raises(UnsupportedError, match=r"lance-dagster\[s3\]"):
        store.get("f")
