"""A read that stays without an answer is sent again, a few times at most, and given up at its deadline."""

import asyncio
import gc
import os
import threading
import time
import weakref
from contextlib import nullcontext

import pytest

from lance_core.errors import LanceError, StoreTimeoutError
from lance_core.store.cloud import hedged_requests
from lance_core.store.cloud.hedged_requests import HedgedRequests, RequestSettings

FOREVER_S = 30


class Service:
    """Answers requests after the given seconds each, with the number of the request."""

    def __init__(self, *delays_s, error=None):
        self.delays_s = delays_s
        self.error = error
        self.num_asked = 0
        self.cancelled = threading.Semaphore(0)

    async def ask(self):
        number = self.num_asked
        self.num_asked += 1
        await later(self.delays_s[min(number, len(self.delays_s) - 1)], self.cancelled)
        if self.error is not None:
            raise self.error
        return number


def later(delay_s, cancelled=None):
    """A future of the running event loop, to which another thread tells something, as obstore does."""
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    timer = threading.Timer(delay_s, loop.call_soon_threadsafe, [future.set_result, None], {"context": None})
    timer.daemon = True

    def end(future):
        timer.cancel()
        if future.cancelled() and cancelled is not None:
            cancelled.release()

    future.add_done_callback(end)
    timer.start()
    return future


def reads(**settings):
    return HedgedRequests(RequestSettings(**settings), lambda _: nullcontext())


def begin(reads, service, num_bytes=0):
    return reads.begin(service.ask, num_bytes=num_bytes, address="s3://bucket/file")


def test_an_answer_in_time_is_not_asked_for_again():
    service = Service(0)
    assert begin(reads(), service).result() == 0
    assert service.num_asked == 1


def test_the_first_answer_wins_and_the_others_are_cancelled():
    service = Service(FOREVER_S, 0)
    began = time.monotonic()
    assert begin(reads(hedge_after=0.02), service).result() == 1
    assert time.monotonic() - began < 5
    assert service.cancelled.acquire(timeout=5)


def test_a_large_answer_has_more_time():
    service = Service(0.2)
    assert begin(reads(hedge_after=0.01), service, num_bytes=64 << 20).result() == 0
    assert service.num_asked == 1


def test_a_read_is_sent_three_times_at_most():
    service = Service(FOREVER_S)
    with pytest.raises(StoreTimeoutError):
        begin(reads(hedge_after=0.01, deadline=0.3), service).result()
    assert service.num_asked == 3


def test_reads_that_are_sent_again_are_bounded(monkeypatch):
    monkeypatch.setattr(hedged_requests, "_HEDGES", 2)
    service, many = Service(FOREVER_S), reads(hedge_after=0.01)
    pending = [begin(many, service) for _ in range(6)]
    while service.num_asked < 6 + 2:
        time.sleep(0.001)
    time.sleep(0.1)
    assert service.num_asked == 6 + 2
    for read in pending:
        read.cancel()


def test_reads_are_not_sent_again_if_nobody_wants_that():
    service = Service(0.1)
    assert begin(reads(hedge_after=0), service).result() == 0
    assert service.num_asked == 1


def test_an_error_counts_only_if_no_other_answer_is_under_way():
    class Service2(Service):
        async def ask(self):
            number = await super().ask()
            if number == 0:
                raise ConnectionError("the first")
            return number

    assert begin(reads(hedge_after=0.02), Service2(0.1, 0.3)).result() == 1
    with pytest.raises(ConnectionError, match="the first"):
        begin(reads(), Service2(0)).result()


def test_the_deadline_names_the_object_and_the_setting():
    with pytest.raises(StoreTimeoutError, match="client_retry_timeout") as caught:
        begin(reads(deadline=0.05), Service(FOREVER_S)).result()
    assert caught.value.path == "s3://bucket/file"
    assert isinstance(caught.value, LanceError)
    assert isinstance(caught.value, TimeoutError)


def test_a_read_that_nobody_wants_is_cancelled():
    service = Service(FOREVER_S)
    pending = begin(reads(), service)
    while not service.num_asked:
        time.sleep(0.001)
    pending.cancel()
    assert service.cancelled.acquire(timeout=5)


def test_several_reads_are_answered_in_their_order():
    async def answer(text, delay_s):
        await later(delay_s)
        return [text]

    asks = [(lambda: answer("a", 0.05), 1), (lambda: answer("b", 0), 1)]
    assert reads().begin_all(asks, address="s3://bucket/file").result() == ["a", "b"]


def test_the_clock_keeps_no_answers():
    """Its thread sleeps for seconds, or for hours."""

    class Answer:
        pass

    class Service2(Service):
        async def ask(self):
            await super().ask()
            return Answer()

    many, service = reads(hedge_after=0.02), Service2(0.1)
    answers = [weakref.ref(begin(many, service).result()) for _ in range(3)]
    end = time.monotonic() + 5
    while any(answer() is not None for answer in answers) and time.monotonic() < end:
        time.sleep(0.01)
        gc.collect()
    assert [answer() for answer in answers] == [None] * 3


def test_a_request_after_one_that_fails_at_once_is_not_sent():
    service = Service(0)

    def ask():
        raise ConnectionError("the first")

    with pytest.raises(ConnectionError, match="the first"):
        reads().begin_all([(ask, 1), (service.ask, 1)], address="s3://bucket/file").result()
    assert service.num_asked == 0
    assert not hedged_requests._clock(os.getpid())._going
