"""Arrow's compute functions, imported when the first one is called: that takes as long as the rest of pyarrow."""

from __future__ import annotations

from typing import Any


class _Kernels:
    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        import pyarrow.compute  # noqa: PLC0415 this is what the module is for

        return getattr(pyarrow.compute, name)


pc: Any = _Kernels()
"""Stands for the module ``pyarrow.compute``, whose functions type checkers do not see anyway."""
