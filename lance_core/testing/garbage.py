"""Bytes changed at random, and which lines of lance_core they lead through."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random
    from types import CodeType, FrameType

_PACKAGE = str(Path(__file__).parent.parent)
_NUMBERS = [0, 1, 2, 7, 8, 127, 128, 255, 256, 4095, 65535, 1 << 20, 1 << 31, (1 << 32) - 1, 1 << 40, (1 << 63) - 1, -1]


def mutate(data: bytearray, at: int, rng: random.Random) -> None:
    """Change some bytes at a position: a bit, a number, garbage, fewer bytes, others of the same file, or the end."""
    kind = rng.randrange(6)
    if kind == 0:
        data[at] ^= 1 << rng.randrange(8)
    elif kind == 1:
        width = rng.choice([1, 2, 4, 8])
        data[at : at + width] = (rng.choice(_NUMBERS) & ((1 << 8 * width) - 1)).to_bytes(width, "little")
    elif kind == 2:
        data[at : at + rng.randrange(1, 16)] = rng.randbytes(rng.randrange(1, 16))
    elif kind == 3:
        del data[at : at + rng.randrange(1, 64)]
    elif kind == 4:
        source = rng.randrange(len(data))
        data[at : at + 16] = data[source : source + 16]
    else:
        del data[max(at, 1) :]


class Steps:
    """The steps from line to line of lance_core that this thread takes while it is entered.

    Attributes:
        taken: Code, line before and line of each; 0 before the first line.
    """

    def __init__(self) -> None:
        self.taken: set[tuple[CodeType, int, int]] = set()

    def __enter__(self) -> None:
        self._before = sys.gettrace()
        sys.settrace(self._call)

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _call(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        code, last = frame.f_code, 0
        if not code.co_filename.startswith(_PACKAGE):
            return None

        def step(frame: FrameType, _event: str, _argument: Any) -> Any:
            nonlocal last
            self.taken.add((code, last, frame.f_lineno))
            last = frame.f_lineno
            return step

        return step
