"""Clock, waiting and randomness of a commit or a cleanup."""

from __future__ import annotations

import os
import time
import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from lance_core.common.frozen import frozen
from lance_core.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Callable


def _utc_now() -> datetime:
    return datetime.now(UTC)


def _random_u63() -> int:
    return int.from_bytes(os.urandom(8), "little") >> 1  # as `secrets` does, which loads much for it


@frozen(kw_only=True)
class Runtime:
    """The outside world; tests pass one of their own to replay a race.

    Attributes:
        now: Current time, UTC.
        monotonic_s: Seconds of a clock that never goes back.
        thread_cpu_s: Seconds that this thread has worked.
        sleep_s: Waits so many seconds.
        random_u63: A random number below 2^63.
    """

    now: Callable[[], datetime] = _utc_now
    monotonic_s: Callable[[], float] = time.monotonic
    thread_cpu_s: Callable[[], float] = time.thread_time
    sleep_s: Callable[[float], None] = time.sleep
    random_u63: Callable[[], int] = _random_u63

    def new_uuid(self) -> str:
        """Return a random uuid, of version 4."""
        return str(uuid.UUID(int=self.random_u63() << 63 | self.random_u63(), version=4))


SYSTEM_RUNTIME = Runtime()

COMMIT_TIMEOUT_VARIABLE = "LANCE_CORE_COMMIT_TIMEOUT"
DEFAULT_COMMIT_TIMEOUT_S = 600.0


def commit_timeout_s() -> float:
    """Return for how many seconds work that is done is committed again and again beside other writers.

    The environment variable ``LANCE_CORE_COMMIT_TIMEOUT`` says so; the default is 600, ten minutes.

    Raises:
        InvalidInputError: It is no positive number.
    """
    text = os.environ.get(COMMIT_TIMEOUT_VARIABLE, "")
    try:
        seconds = float(text) if text else DEFAULT_COMMIT_TIMEOUT_S
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise InvalidInputError(
            f"environment variable {COMMIT_TIMEOUT_VARIABLE} is {text!r}; set it to a positive number of seconds"
        )
    return seconds
