"""What a commit or a clean-up takes from the outside world: time, waiting and chance."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from lance_core.frozen import frozen

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


SYSTEM_RUNTIME = Runtime()
