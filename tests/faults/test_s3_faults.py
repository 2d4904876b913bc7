"""Datasets on an object store that fails, loses answers, or does not keep its promises."""

import os
import pickle
import random
import time
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import (
    CommitOutcomeUnknownError,
    DatasetNotFoundError,
    LanceError,
    StoreTimeoutError,
    UnsafeStoreError,
)
from lance_core.store.open import open_store

pytestmark = pytest.mark.usefixtures("short_pauses")
IS_DEEP = os.environ.get("LANCE_TESTS") == "deep"
APPENDS = 50 if IS_DEEP else 8
STORMS = 20 if IS_DEEP else 1
ROWS = pa.table({"a": range(1000), "s": [f"row {number}" for number in range(1000)]})


@pytest.fixture
def uri(cloud):
    return f"{cloud.uri}/t.lance"


@pytest.fixture
def uri_of_s3(s3):
    return f"{s3.uri}/t.lance"


def without_retries(cloud):
    return {**cloud.storage_options, "client_max_retries": "0"}


def files(cloud, uri):
    store = open_store(cloud.uri, cloud.storage_options)
    return sorted(info.path.partition("/")[2] for info in store.list(uri.rpartition("/")[2]))


def test_requests_are_few(s3):
    uri, options = f"{s3.uri}/t.lance", s3.storage_options
    lance_core.write_dataset(ROWS, uri, storage_options=options)
    for _ in range(20):
        lance_core.write_dataset(ROWS, uri, mode="append", storage_options=options)
    s3.requests()

    def counted():
        return [method for method, _ in s3.requests()]

    lance_core.write_dataset(ROWS, uri, mode="append", storage_options=options)
    # Newest version and its manifest; data; at once newest version and transaction; manifest; check.
    asked = counted()
    assert asked[:3] + sorted(asked[3:5]) + asked[5:] == ["GET", "GET", "PUT", "GET", "PUT", "PUT", "GET"]
    dataset = lance_core.dataset(uri, storage_options=options)
    assert counted() == ["GET", "GET"]
    dataset.take([1, 5, 1001, 1007])
    assert counted() == ["GET", "GET"]
    dataset.take([2, 1002])
    assert dataset.count_rows() == 22_000
    assert counted() == []
    assert dataset.latest_version == 22
    assert counted() == ["GET"]


def test_small_fragments_need_one_request_each(cloud, uri):
    """Scans, filters, counts and takes read each of them whole, and then know it."""
    options = cloud.storage_options
    lance_core.write_dataset(ROWS, uri, max_rows_per_file=100, storage_options=options)
    works = [
        lambda dataset: dataset.to_table().num_rows,
        lambda dataset: dataset.to_table(filter="a % 100 < 20").num_rows,
        lambda dataset: dataset.count_rows("s != 'row 7'"),
        lambda dataset: dataset.take(list(range(0, 1000, 3))).num_rows,
        lambda dataset: dataset.to_table(columns=["a"]).num_rows,
    ]
    for work, expected in zip(works, [1000, 200, 999, 334, 1000], strict=True):
        dataset = lance_core.dataset(uri, storage_options=options)
        cloud.requests()
        assert work(dataset) == work(dataset) == expected
        assert [method for method, _ in cloud.requests()] == ["GET"] * 10


def test_inserts_fit_the_newest_version(cloud, uri):
    dataset = lance_core.write_dataset(ROWS, uri, storage_options=cloud.storage_options)
    cloud.requests()
    dataset.insert(ROWS)
    # At once newest version, its manifest, data, newest version and transaction; manifest; check.
    asked = [method for method, _ in cloud.requests()]
    assert sorted(asked[:5]) + asked[5:] == ["GET", "GET", "GET", "PUT", "PUT", "PUT", "GET"]
    stale = lance_core.dataset(uri, storage_options=cloud.storage_options)
    dataset.add_columns({"b": "a + 1"})
    dataset.alter_columns({"path": "a", "data_type": pa.int32()})
    stale.insert(pa.table({"a": pa.array([7], pa.int32()), "b": [8], "s": ["new"]}))
    assert stale.to_table(filter="s = 'new'").to_pylist() == [{"a": 7, "s": "new", "b": 8}]
    assert stale.count_rows() == dataset.count_rows() + 1 == 2001


def test_datasets_keep_their_options(cloud, uri):
    dataset = lance_core.write_dataset(ROWS, uri, storage_options=cloud.storage_options)
    again = pickle.loads(pickle.dumps(dataset))  # noqa: S301 - our own
    assert again.to_table() == ROWS
    assert lance_core.write_dataset(ROWS, dataset, mode="append").count_rows() == 2000
    assert dataset.checkout_version(1).count_rows() == 1000


@pytest.mark.parametrize("mode", ["after-500", "after-503", "after-drop"])
@pytest.mark.parametrize("retries", ["0", "5"])
def test_a_lost_answer_makes_one_version(cloud, uri, mode, retries):
    options = {**cloud.storage_options, "client_max_retries": retries}
    for number in range(1, 3):
        cloud.fail("PUT", ".manifest", mode)
        assert lance_core.write_dataset(ROWS, uri, mode="append", storage_options=options).version == number
    dataset = lance_core.dataset(uri, storage_options=options)
    assert dataset.to_table() == pa.concat_tables([ROWS, ROWS])
    assert len(dataset.versions()) == 2


def test_a_strict_commit_recognises_itself(cloud, uri):
    dataset = lance_core.write_dataset(ROWS, uri, storage_options=cloud.storage_options)
    fragments = lance_core.write_fragments(ROWS, dataset, mode="overwrite")
    cloud.fail("PUT", ".manifest", "after-drop")
    operation = lance_core.LanceOperation.Overwrite(dataset.schema, fragments)
    committed = lance_core.LanceDataset.commit(dataset, operation, read_version=1, max_retries=0)
    assert committed.version == 2
    assert committed.to_table() == ROWS


def test_an_unknown_outcome_is_told_and_nothing_deleted(cloud, uri):
    lance_core.write_dataset(ROWS, uri, storage_options=cloud.storage_options)
    options = without_retries(cloud)
    cloud.fail("PUT", ".manifest", "before-drop", times=100)
    with pytest.raises(CommitOutcomeUnknownError):
        lance_core.write_dataset(ROWS, uri, mode="append", storage_options=options)
    assert len([file for file in files(cloud, uri) if file.startswith("data/")]) == 2
    assert lance_core.dataset(uri, storage_options=options).to_table() == ROWS


@pytest.mark.parametrize("mode", ["before-500", "after-500", "before-drop", "after-drop"])
def test_each_request_of_an_append_may_fail(cloud, uri, mode):
    options = without_retries(cloud)
    lance_core.write_dataset(ROWS, uri, storage_options=options)
    done = 1
    for failing in range(9):
        cloud.fail("", "t.lance", mode, skip=failing)
        try:
            lance_core.write_dataset(ROWS, uri, mode="append", storage_options=options)
            acknowledged = True
        except (LanceError, OSError):
            acknowledged = False
        cloud._post("faults", [])
        dataset = lance_core.dataset(uri, storage_options=options)
        assert dataset.version in ({done + 1} if acknowledged else {done, done + 1})
        done = dataset.version
        assert dataset.to_table().num_rows == dataset.count_rows() == done * ROWS.num_rows
    assert acknowledged, "the last request number is beyond what an append needs"


def test_a_service_that_ignores_conditions_gets_no_commit(cloud, uri):
    options = {**cloud.storage_options, "client_max_retries": "1"}
    cloud.fail("PUT", "", "ignore-condition", times=1000)
    for mode in ("create", "append", "overwrite"):
        with pytest.raises(UnsafeStoreError, match="does not support the condition"):
            lance_core.write_dataset(ROWS, uri, mode=mode, storage_options=options)
    assert files(cloud, uri) == []
    with pytest.raises(DatasetNotFoundError):
        lance_core.dataset(uri, storage_options=options)


@pytest.mark.parametrize("mode", ["after-500", "after-503", "after-drop", "before-503", "before-drop"])
@pytest.mark.parametrize("every", [1, 4])
def test_appends_while_answers_get_lost(cloud, uri, mode, every):
    """What was acknowledged is there once, and nothing else is; in the end the store's client has given up or not."""
    options = {**cloud.storage_options, "client_max_retries": "1"}
    lance_core.write_dataset(ROWS.slice(0, 1), uri, storage_options=options)
    acknowledged, unsure = [], []
    for number in range(1, APPENDS + 1):
        if number % every == 0:
            cloud.fail("PUT", ".manifest", mode, times=1 if every > 1 or mode.startswith("before") else 1000)
        try:
            lance_core.write_dataset(ROWS.slice(number, 1), uri, mode="append", storage_options=options)
            acknowledged.append(number)
        except CommitOutcomeUnknownError:
            unsure.append(number)
        cloud._post("faults", [])
    dataset = lance_core.dataset(uri, storage_options=options)
    found = sorted(dataset.to_table()["a"].to_pylist())
    assert set(found) - set(unsure) == {0, *acknowledged}
    assert len(set(found)) == len(found) == dataset.version
    assert mode.startswith("before") or not unsure


def test_an_unknown_outcome_is_found_by_its_key(cloud, uri):
    """The commit lands, its answer is lost, and nobody can look: who tries again with the key learns the version."""
    options = without_retries(cloud)
    lance_core.write_dataset(ROWS, uri, storage_options=options)
    store = open_store(uri, options)
    before = {info.path for info in store.list("data")}
    lost = {"method": "PUT", "contains": ".manifest", "mode": "after-drop", "times": 9}
    blind = {"contains": f"{(1 << 64) - 3}.manifest", "mode": "before-500", "times": 99}  # of version 2
    cloud._post("faults", [lost, {**blind, "method": "HEAD"}, {**blind, "method": "GET"}])
    with pytest.raises(CommitOutcomeUnknownError):
        lance_core.write_dataset(ROWS, uri, mode="append", storage_options=options, idempotency_key="k")
    cloud._post("faults", [])
    assert len({info.path for info in store.list("data")} - before) == 1, "nothing was deleted"
    again = lance_core.write_dataset(ROWS, uri, mode="append", storage_options=options, idempotency_key="k")
    assert again.version == 2
    assert again.count_rows() == 2000
    assert len(again.versions()) == 2


@pytest.mark.parametrize("status", [304, 400, 403, 409, 412, 429, 500, 501, 502, 503, 504])
@pytest.mark.parametrize("times", [1, 1000])
def test_answers_of_all_kinds(cloud, uri, status, times):
    """Nothing is written where a service says no, however it says it; the error is typed, or the commit lands."""
    options = {**cloud.storage_options, "client_max_retries": "1"}
    lance_core.write_dataset(ROWS, uri, storage_options=options)
    cloud.fail("PUT", ".manifest", f"before-{status}", times=times)
    try:
        landed = lance_core.write_dataset(ROWS, uri, mode="append", storage_options=options).version == 2
    except (LanceError, OSError):
        landed = False
    cloud._post("faults", [])
    dataset = lance_core.dataset(uri, storage_options=options)
    assert dataset.version == 1 + landed
    assert dataset.to_table().num_rows == dataset.count_rows() == (1 + landed) * ROWS.num_rows
    assert not (landed and times > 1)
    assert lance_core.write_dataset(ROWS, uri, mode="append", storage_options=options).version == 2 + landed


@pytest.mark.parametrize("seed", range(STORMS))
@pytest.mark.parametrize("retries", ["0", "2"])
def test_a_service_that_asks_to_slow_down(cloud, uri, seed, retries):
    """Three of ten requests are refused, in bursts; what was acknowledged is there once, and nothing else is."""
    dice = random.Random(seed)
    options = {**cloud.storage_options, "client_max_retries": retries}
    lance_core.write_dataset(ROWS.slice(0, 1), uri, storage_options=options)
    bursts, place = [], 0
    while place < 1000:
        bursts.append({"method": "", "contains": "/t.lance", "mode": "before-slow-503", "skip": place})
        bursts[-1]["times"] = dice.randrange(1, 5)
        place += dice.randrange(1, 11)
    cloud._post("faults", bursts)
    acknowledged, refused = [], 0
    for number in range(1, APPENDS + 1):
        try:
            lance_core.write_dataset(ROWS.slice(number, 1), uri, mode="append", storage_options=options)
            acknowledged.append(number)
        except (LanceError, OSError):
            refused += 1
    assert acknowledged if retries != "0" else refused
    cloud._post("faults", [])
    dataset = lance_core.dataset(uri, storage_options=options)
    assert sorted(dataset.to_table()["a"].to_pylist()) == [0, *acknowledged]
    assert dataset.version == 1 + len(acknowledged)


# ----------------------------------------------------------------------------------------------------------- silence

READS = {
    "scan": lambda dataset: dataset.to_table(),
    "filter": lambda dataset: dataset.to_table(filter="a % 100 < 20"),
    "take": lambda dataset: dataset.take(list(range(0, 1000, 37))),
    "count": lambda dataset: pa.table({"n": [dataset.count_rows("s != 'row 7'")]}),
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("silent", [".manifest", "/data/"])
def test_a_stalled_read_is_sent_again(cloud, uri, silent, read):
    """The service is silent for 30 s about a manifest, or about three data files."""
    options = cloud.storage_options
    expected = READS[read](lance_core.write_dataset(ROWS, uri, max_rows_per_file=100, storage_options=options))
    cloud.fail("GET", silent, "stall", times=1 if silent == ".manifest" else 3)
    began = time.monotonic()
    found = READS[read](lance_core.dataset(uri, storage_options={**options, "read_hedge_after": "50ms"}))
    assert found == expected
    assert time.monotonic() - began < 15


def test_a_stalled_look_at_a_file_is_sent_again(cloud, uri):
    """The service is silent for 30 s when a commit asks for the size of a file that it brings."""
    options = {**cloud.storage_options, "read_hedge_after": "50ms"}
    dataset = lance_core.write_dataset(ROWS, uri, storage_options=options)
    operation = lance_core.LanceOperation.Append(lance_core.write_fragments(ROWS, dataset))
    cloud.fail("HEAD", "/data/", "stall", times=1)
    began = time.monotonic()
    assert lance_core.LanceDataset.commit(dataset, operation, read_version=1).count_rows() == 2000
    assert time.monotonic() - began < 15


@pytest.mark.parametrize("mode", ["stall", "late-answer"])
def test_each_request_of_an_append_may_stall(cloud, uri, mode):
    """The service is silent for 30 s, before or after the request has its effect: one version comes of it, soon."""
    options = {**cloud.storage_options, "read_hedge_after": "50ms"}
    lance_core.write_dataset(ROWS, uri, storage_options=options)
    began = time.monotonic()
    for silent in range(8):
        cloud.fail("", "t.lance", mode, skip=silent)
        dataset = lance_core.write_dataset(ROWS, uri, mode="append", storage_options=options)
        cloud._post("faults", [])
        assert dataset.version == dataset.latest_version == silent + 2
        assert dataset.count_rows() == (silent + 2) * ROWS.num_rows
    assert time.monotonic() - began < 25


@pytest.mark.parametrize("silent", range(4))
def test_the_test_of_a_service_may_stall(s3, silent):
    options = {**s3.storage_options, "read_hedge_after": "50ms"}
    s3.fail("", "t.lance/.tmp_", "stall", skip=silent)
    began = time.monotonic()
    assert lance_core.write_dataset(ROWS, f"{s3.uri}/t.lance", storage_options=options).version == 1
    assert time.monotonic() - began < 15


def test_deletion_files_that_stall_are_sent_again(cloud, uri):
    options = {**cloud.storage_options, "read_hedge_after": "50ms"}
    dataset = lance_core.write_dataset(ROWS, uri, max_rows_per_file=100, storage_options=options)
    cloud.fail("", "/_deletions/", "stall", times=3)
    began = time.monotonic()
    assert dataset.delete("a % 100 < 20")["num_deleted_rows"] == 200
    assert time.monotonic() - began < 15
    assert dataset.count_rows() == 800
    assert len(files(cloud, uri)) == 10 + 10 + 2 + 2, "data, deletions, manifests and transactions, each once"


def test_a_delete_is_published_when_its_files_are_there(s3, uri_of_s3):
    """The transaction is written while the last deletion files are on their way, the manifest is not."""
    options = s3.storage_options
    dataset = lance_core.write_dataset(ROWS, uri_of_s3, max_rows_per_file=100, storage_options=options)
    s3.requests()
    s3.fail("PUT", "/_deletions/", "held", times=1)
    written = []
    with ThreadPoolExecutor(1) as pool:
        deleted = pool.submit(dataset.delete, "a % 100 < 20")
        end = time.monotonic() + 30
        while not any("/_transactions/" in path for path in written) and time.monotonic() < end:
            written += [path for method, path in s3.requests() if method == "PUT"]
        time.sleep(0.3)  # for a manifest that should not come
        written += [path for method, path in s3.requests() if method == "PUT"]
        assert sorted(path.split("/")[-2] for path in written) == [*["_deletions"] * 10, "_transactions"]
        s3.recover()
        deleted.result(60)
    assert lance_core.dataset(uri_of_s3, storage_options=options).count_rows() == 800


def test_what_others_may_write_again_is_sent_once(s3, uri_of_s3):
    """A late request for a tag must not undo a later one."""
    options = {**s3.storage_options, "read_hedge_after": "50ms"}
    dataset = lance_core.write_dataset(ROWS, uri_of_s3, storage_options=options)
    dataset.tags.create("one", 1)
    s3.requests()
    s3.fail("PUT", "_refs/tags/one", "held")
    with ThreadPoolExecutor(1) as pool:
        updated = pool.submit(dataset.tags.update, "one", 1)
        time.sleep(0.5)
        assert not updated.done()
        s3.recover()
        updated.result(60)
    assert [path for method, path in s3.requests() if method == "PUT" and "tags/one" in path] == [
        f"/{uri_of_s3.removeprefix('s3://')}/_refs/tags/one.json"
    ]


def test_a_read_is_given_up_at_its_deadline(cloud, uri):
    lance_core.write_dataset(ROWS, uri, storage_options=cloud.storage_options)
    dataset = lance_core.dataset(
        uri, storage_options={**cloud.storage_options, "read_hedge_after": "50ms", "client_retry_timeout": "1s"}
    )
    cloud.fail("GET", "/data/", "stall", times=9)
    with pytest.raises(StoreTimeoutError, match=r"'client_retry_timeout' .*/data/"):
        dataset.to_table()
