"""Answers of obstore are taken in the threads that bring them, without an event loop of asyncio; or with one."""

import asyncio
import threading
from functools import partial

import obstore
import pyarrow as pa
import pytest

import lance_core
from lance_core.store.cloud import answers
from lance_core.store.cloud.answers import Asked

TIMEOUT_S = 10


class Told:
    """What a request tells; waits for it."""

    def __init__(self):
        self.calls = []
        self.came = threading.Event()

    def __call__(self, _, answer, error):
        self.calls.append((answer, error))
        self.came.set()

    def wait(self):
        assert self.came.wait(TIMEOUT_S)
        (call,) = self.calls
        return call


def answer_later(service, value):
    """A future as obstore makes it; another thread tells it a value when `service` is set."""
    loop = asyncio.get_running_loop()
    future = loop.create_future()

    def tell():
        service.wait(TIMEOUT_S)
        loop.call_soon_threadsafe(future.set_result, value, context=None)

    threading.Thread(target=tell, daemon=True).start()
    return future


@pytest.fixture
def service():
    return threading.Event()


@pytest.fixture
def told():
    return Told()


def test_a_coroutine_goes_on_with_each_answer(service, told):
    async def ask():
        return await answer_later(service, 1) + await answer_later(service, 2)

    Asked(ask, told).start()
    assert not told.calls
    service.set()
    assert told.wait() == (3, None)


def test_a_function_that_returns_a_future_is_enough(service, told):
    Asked(lambda: answer_later(service, "bytes"), told).start()
    service.set()
    assert told.wait() == ("bytes", None)


@pytest.mark.parametrize("error", [ValueError("later"), KeyboardInterrupt()])
def test_errors_are_told(service, told, error):
    async def ask():
        await answer_later(service, 1)
        raise error

    Asked(ask, told).start()
    service.set()
    assert told.wait() == (None, error)


def test_an_error_at_once_is_told(told):
    def ask():
        raise ValueError("no such store")

    Asked(ask, told).start()
    assert str(told.wait()[1]) == "no such store"


def test_who_cancels_is_told_nothing_and_the_future_is_cancelled(service, told):
    futures = []

    def ask():
        futures.append(answer_later(service, 1))
        return futures[0]

    asked = Asked(ask, told)
    asked.start()
    asked.cancel()
    assert futures[0].cancelled()
    service.set()  # a late answer is no error
    futures[0].set_result(2)
    assert not told.calls


def test_a_request_that_was_cancelled_first_is_not_sent(told):
    asked = Asked(lambda: pytest.fail("sent"), told)
    asked.cancel()
    asked.start()
    assert not told.calls


def test_the_callers_event_loop_stays(service, told):
    """A notebook has one."""

    async def work():
        service.set()
        Asked(lambda: answer_later(service, 1), told).start()
        await asyncio.sleep(0)
        return asyncio.get_running_loop()

    loop = asyncio.new_event_loop()
    assert loop.run_until_complete(work()) is loop
    loop.close()
    assert told.wait() == (1, None)


def test_a_table_is_read_inside_an_event_loop(s3):

    async def work():
        rows = pa.table({"a": [1, 2]})
        lance_core.write_dataset(rows, f"{s3.uri}/t.lance", storage_options=s3.storage_options)
        return lance_core.dataset(f"{s3.uri}/t.lance", storage_options=s3.storage_options).count_rows("a > 1")

    assert asyncio.run(work()) == 1


def test_this_python_needs_no_event_loop():
    """If this fails with a new Python, requests still work, but cost more: see `lance_core.store.cloud.answers`."""
    assert answers.answers_here()


def no_such_function(*_):
    raise AttributeError("_set_running_loop")


@pytest.fixture(params=["here", "loop in a thread"])
def way(request, monkeypatch):
    """As on a Python where what obstore asks for is found, or not."""
    if request.param != "here":
        monkeypatch.setattr(asyncio, "_set_running_loop", no_such_function)
    answers.answers_here.cache_clear()
    yield request.param
    monkeypatch.undo()
    answers.answers_here.cache_clear()


@pytest.mark.usefixtures("way")
def test_obstore_answers_with_and_without_an_event_loop(told):
    store = obstore.store.MemoryStore()

    async def ask():
        await obstore.put_async(store, "key", b"content")
        return bytes(await (await obstore.get_async(store, "key")).bytes_async())

    Asked(ask, told).start()
    assert told.wait() == (b"content", None)


@pytest.mark.usefixtures("way")
def test_errors_of_obstore_are_told_with_and_without_an_event_loop(told):
    Asked(partial(obstore.get_async, obstore.store.MemoryStore(), "missing"), told).start()
    assert isinstance(told.wait()[1], FileNotFoundError)


def test_a_table_is_read_with_an_event_loop(s3, way):
    rows = pa.table({"a": range(1000)})
    uri = f"{s3.uri}/t.lance"
    lance_core.write_dataset(rows, uri, max_rows_per_file=100, storage_options=s3.storage_options)
    assert lance_core.dataset(uri, storage_options=s3.storage_options).to_table() == rows
    names = {thread.name for thread in threading.enumerate()}
    assert way == "here" or "lance_core_answers" in names


@pytest.mark.usefixtures("way")
def test_who_cancels_a_request_of_obstore_is_told_nothing(told):
    asked = Asked(partial(obstore.get_async, obstore.store.MemoryStore(), "missing"), told)
    asked.cancel()
    asked.start()
    assert not told.calls
