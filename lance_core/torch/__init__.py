"""Lance datasets for PyTorch: names and arguments as in pylance's ``lance.torch``. Needs the extra ``torch``."""

from __future__ import annotations

from typing import Any

__all__ = ["preferred_device"]


def preferred_device(device: Any = None) -> Any:
    """Return the device to compute on.

    Args:
        device: Name of a device, or a ``torch.device``; None for CUDA or Apple's MPS where there is one, else the CPU.

    Returns:
        A ``torch.device``.

    Raises:
        ImportError: PyTorch is not installed.
    """
    from lance_core.torch.backend import torch  # noqa: PLC0415 only this function needs PyTorch

    if device is not None:
        return torch.device(device) if isinstance(device, str) else device
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
