"""Number of this process among those that train together, and among the workers of a DataLoader."""

from __future__ import annotations

from lance_core.torch.backend import torch

__all__ = [
    "get_dist_rank",
    "get_dist_world_size",
    "get_global_rank",
    "get_global_world_size",
    "get_mp_rank",
    "get_mp_world_size",
]


def get_dist_world_size() -> int:
    """Return the number of processes of ``torch.distributed``; 1 if it is not initialized."""
    distributed = torch.distributed
    return int(distributed.get_world_size()) if distributed.is_available() and distributed.is_initialized() else 1


def get_dist_rank() -> int:
    """Return the number of this process in ``torch.distributed``; 0 if it is not initialized."""
    distributed = torch.distributed
    return int(distributed.get_rank()) if distributed.is_available() and distributed.is_initialized() else 0


def get_mp_world_size() -> int:
    """Return the number of workers of the DataLoader; 1 outside of a worker."""
    info = torch.utils.data.get_worker_info()
    return 1 if info is None else int(info.num_workers)


def get_mp_rank() -> int:
    """Return the number of this worker of the DataLoader; 0 outside of a worker."""
    info = torch.utils.data.get_worker_info()
    return 0 if info is None else int(info.id)


def get_global_world_size() -> int:
    """Return the number of workers of all processes."""
    return get_dist_world_size() * get_mp_world_size()


def get_global_rank() -> int:
    """Return the number of this worker among those of all processes."""
    return get_dist_rank() * get_mp_world_size() + get_mp_rank()
