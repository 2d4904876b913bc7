"""Fixtures for what needs neither Java nor pylance."""

import gc
import sys

import pytest


@pytest.fixture
def calls_of(monkeypatch):
    """How many functions, Python's and C's, a piece of work calls in this thread.

    Value classes compile their ``__init__`` for their first object: otherwise it depends on the tests before which work
    makes the object that they compile it for.
    """
    monkeypatch.setattr("lance_core.common.frozen._MADE_BY_HAND", 0)

    def counted(work):
        count = 0

        def see(_frame, event, _argument):
            nonlocal count
            count += event in ("call", "c_call")

        gc.collect()
        gc.disable()  # what a collection calls is due to what was done before
        sys.setprofile(see)
        try:
            work()
        finally:
            sys.setprofile(None)
            gc.enable()
        return count

    return counted
