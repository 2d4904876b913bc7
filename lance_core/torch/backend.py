"""PyTorch itself: the only module that imports it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["torch"]


def _load() -> Any:
    try:
        module = import_module("torch")
        for part in ("torch.distributed", "torch.utils.data"):
            import_module(part)
    except ImportError as error:
        raise ImportError("lance_core.torch needs PyTorch: install the extra, lance-dagster[torch]") from error
    return module


torch: Any = _load()
