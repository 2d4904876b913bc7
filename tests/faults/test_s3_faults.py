"""Datasets on an S3 service that fails, loses answers, or does not keep its promises."""

import pickle

import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import CommitOutcomeUnknownError, DatasetNotFoundError, LanceError, UnsafeStoreError
from lance_core.store.open import open_store

ROWS = pa.table({"a": range(1000), "s": [f"row {number}" for number in range(1000)]})


@pytest.fixture
def uri(s3):
    return f"{s3.uri}/t.lance"


def without_retries(s3):
    return {**s3.storage_options, "client_max_retries": "0"}


def files(s3, uri):
    store = open_store(s3.uri, s3.storage_options)
    return sorted(info.path.partition("/")[2] for info in store.list(uri.rpartition("/")[2]))


def test_requests_are_few(s3, uri):
    options = s3.storage_options
    lance_core.write_dataset(ROWS, uri, storage_options=options)
    for _ in range(20):
        lance_core.write_dataset(ROWS, uri, mode="append", storage_options=options)
    s3.requests()

    def counted():
        return [method for method, _ in s3.requests()]

    lance_core.write_dataset(ROWS, uri, mode="append", storage_options=options)
    # Newest version and its manifest; data; newest version, is the data there; transaction, manifest; is it visible.
    assert counted() == ["GET", "GET", "PUT", "GET", "HEAD", "PUT", "PUT", "GET"]
    dataset = lance_core.dataset(uri, storage_options=options)
    assert counted() == ["GET", "GET"]
    dataset.take([1, 5, 1001, 1007])
    assert counted() == ["GET", "GET"]
    dataset.take([2, 1002])
    assert dataset.count_rows() == 22_000
    assert counted() == []
    assert dataset.latest_version == 22
    assert counted() == ["GET"]


def test_datasets_keep_their_options(s3, uri):
    dataset = lance_core.write_dataset(ROWS, uri, storage_options=s3.storage_options)
    again = pickle.loads(pickle.dumps(dataset))  # noqa: S301 - our own
    assert again.to_table() == ROWS
    assert lance_core.write_dataset(ROWS, dataset, mode="append").count_rows() == 2000
    assert dataset.checkout_version(1).count_rows() == 1000


@pytest.mark.parametrize("mode", ["after-500", "after-503", "after-drop"])
@pytest.mark.parametrize("retries", ["0", "5"])
def test_a_lost_answer_makes_one_version(s3, uri, mode, retries):
    options = {**s3.storage_options, "client_max_retries": retries}
    for number in range(1, 3):
        s3.fail("PUT", ".manifest", mode)
        assert lance_core.write_dataset(ROWS, uri, mode="append", storage_options=options).version == number
    dataset = lance_core.dataset(uri, storage_options=options)
    assert dataset.to_table() == pa.concat_tables([ROWS, ROWS])
    assert len(dataset.versions()) == 2


def test_a_strict_commit_recognises_itself(s3, uri):
    dataset = lance_core.write_dataset(ROWS, uri, storage_options=s3.storage_options)
    fragments = lance_core.write_fragments(ROWS, dataset, mode="overwrite")
    s3.fail("PUT", ".manifest", "after-drop")
    operation = lance_core.LanceOperation.Overwrite(dataset.schema, fragments)
    committed = lance_core.LanceDataset.commit(dataset, operation, read_version=1, max_retries=0)
    assert committed.version == 2
    assert committed.to_table() == ROWS


def test_an_unknown_outcome_is_told_and_nothing_deleted(s3, uri):
    lance_core.write_dataset(ROWS, uri, storage_options=s3.storage_options)
    options = without_retries(s3)
    s3.fail("PUT", ".manifest", "before-drop", times=100)
    with pytest.raises(CommitOutcomeUnknownError):
        lance_core.write_dataset(ROWS, uri, mode="append", storage_options=options)
    assert len([file for file in files(s3, uri) if file.startswith("data/")]) == 2
    assert lance_core.dataset(uri, storage_options=options).to_table() == ROWS


@pytest.mark.parametrize("mode", ["before-500", "after-500", "before-drop", "after-drop"])
def test_each_request_of_an_append_may_fail(s3, uri, mode):
    options = without_retries(s3)
    lance_core.write_dataset(ROWS, uri, storage_options=options)
    done = 1
    for failing in range(9):
        s3.fail("", "t.lance", mode, skip=failing)
        try:
            lance_core.write_dataset(ROWS, uri, mode="append", storage_options=options)
            acknowledged = True
        except (LanceError, OSError):
            acknowledged = False
        s3._post("faults", [])
        dataset = lance_core.dataset(uri, storage_options=options)
        assert dataset.version in ({done + 1} if acknowledged else {done, done + 1})
        done = dataset.version
        assert dataset.to_table().num_rows == dataset.count_rows() == done * ROWS.num_rows
    assert acknowledged, "the last request number is beyond what an append needs"


def test_a_service_that_ignores_conditions_gets_no_commit(s3, uri):
    options = {**s3.storage_options, "client_max_retries": "1"}
    s3.fail("PUT", "", "ignore-condition", times=1000)
    for mode in ("create", "append", "overwrite"):
        with pytest.raises(UnsafeStoreError, match="If-None-Match"):
            lance_core.write_dataset(ROWS, uri, mode=mode, storage_options=options)
    assert files(s3, uri) == []
    with pytest.raises(DatasetNotFoundError):
        lance_core.dataset(uri, storage_options=options)
