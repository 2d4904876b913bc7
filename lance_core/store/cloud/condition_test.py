"""Test whether a service refuses to create an object that exists.

Services that do not know the condition ignore it silently, and two writers could overwrite each other's commits. The
test takes four requests, one after the other, so it runs while the first data file is encoded and uploaded.
"""

from __future__ import annotations

import threading
import uuid
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

TEST_PREFIX = ".tmp_"
"""Start of the name of the object that the test creates and deletes; a clean-up deletes one that was left."""


class Creator(Protocol):
    """A connection that creates objects on a condition."""

    def creates_once(self, key: str, *, mark: str, address: str) -> bool:
        """Return whether the service refuses to create an object twice, and tells who created it."""
        ...

    def delete(self, keys: Sequence[str], *, address: str, is_repeatable: bool = False) -> None:
        """Delete objects."""
        ...


class ConditionTest:
    """The test of one connection, which is made once; may be used by several threads.

    If the service does not answer or does not know the condition, the test is made again when it is needed again.

    Args:
        client: The connection.
    """

    def __init__(self, client: Creator) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._test: Future[bool] | None = None

    def begin(self, folder: str, *, address: str) -> None:
        """Begin the test in a thread of its own, unless it was begun.

        Args:
            folder: Prefix of the key of the object that the test creates.
            address: Address of the dataset, for errors.
        """
        if self._test is None:
            self._begun(folder, address)

    def passes(self, folder: str, *, address: str) -> bool:
        """Return whether the service keeps the condition; arguments as `begin`.

        Raises:
            OSError: It did not answer, or refused.
        """
        was_begun = self._test is not None
        test = self._begun(folder, address)
        try:
            passed = test.result()
        except OSError:
            self._forget(test)
            if was_begun:  # the service may have recovered since
                return self.passes(folder, address=address)
            raise
        if not passed:
            self._forget(test)
        return passed

    def _begun(self, folder: str, address: str) -> Future[bool]:
        with self._lock:
            if self._test is None:
                test = self._test = Future()
                threading.Thread(target=self._run, args=(test, folder, address), name="lance_core_condition").start()
            return self._test

    def _forget(self, test: Future[bool]) -> None:
        with self._lock:
            if self._test is test:
                self._test = None

    def _run(self, test: Future[bool], folder: str, address: str) -> None:
        mark = uuid.uuid4().hex
        name = f"{TEST_PREFIX}{mark}"
        try:
            try:
                passed = self._client.creates_once(f"{folder}{name}", mark=mark, address=f"{address}/{name}")
            finally:
                with suppress(OSError):
                    self._client.delete([f"{folder}{name}"], address=address, is_repeatable=True)
        except BaseException as error:  # noqa: BLE001 raised by `passes`
            test.set_exception(error)
        else:
            test.set_result(passed)
