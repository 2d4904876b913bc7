"""Sources of the random parts of new file names."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from lance_core.common.frozen import frozen
from lance_core.table.runtime import SYSTEM_RUNTIME

if TYPE_CHECKING:
    from collections.abc import Callable


def _random_uuid() -> bytes:
    return uuid.uuid4().bytes


def _random_u63(_fragment_id: int) -> int:
    return SYSTEM_RUNTIME.random_u63()


@frozen(kw_only=True)
class NewIds:
    """Makes names that nobody else uses; a task of a cluster passes names by which its files can be found again.

    Attributes:
        data_file: 16 new bytes at each call.
        deletion_file: A new number below 2^63 for the deletion file of a fragment.
    """

    data_file: Callable[[], bytes] = _random_uuid
    deletion_file: Callable[[int], int] = _random_u63


RANDOM_IDS = NewIds()
