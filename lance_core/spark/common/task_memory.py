"""Memory of the processes in which Spark plans and runs tasks."""

from __future__ import annotations

import gc
import sys
from functools import cache

import numpy as np

_BLOCK_BYTES = (32 << 20) - (1 << 16)
"""A little less than the largest block that glibc learns from."""


@cache
def keep_freed_memory() -> None:
    """Let the C library use freed memory again instead of giving it back.

    A task collects batches until a page is full and frees them together. glibc gives such memory back, and each 4 KiB
    that are asked for again are a page fault: a quarter of what a task costs that writes 19 narrow columns. The largest
    block that was mapped and freed tells glibc which sizes come and go: up to there it keeps blocks, twice as much in
    all. So one is mapped and freed, and never touched. Other C libraries take no notice.
    """
    np.empty(_BLOCK_BYTES, np.uint8)


def keep_modules() -> None:
    """Let the garbage collector pass over the modules that are loaded.

    Spark has garbage collected after each plan and each task. That looks at 60,000 objects of modules, which are there
    to stay, and takes 25 to 30 ms: more than a small plan or task takes in Python. Plans and tasks load some modules
    only when they need them, so those are passed over from the next one on.
    """
    global _num_modules  # noqa: PLW0603 what the process has loaded
    if len(sys.modules) > _num_modules:
        _num_modules = len(sys.modules)
        gc.freeze()


_num_modules = 0
"""Modules that were loaded at the last call."""
