"""Other places in which files of a table lie (message ``BasePath`` of package ``lance.table``)."""

from __future__ import annotations

from lance_core._proto import table_pb2
from lance_core.common.frozen import frozen


@frozen(kw_only=True)
class BasePath:
    """Another place in which files of the table lie.

    Attributes:
        id: What ``DataFile.base_id`` and ``DeletionFile.base_id`` name it by.
        path: Its address, as the writer spelled it.
        name: For people, and for choosing where to write; None if it has none.
        is_dataset_root: True if it is laid out like a dataset (data files below ``data/``); False if data files,
            deletion files and folders of indices lie directly in it.
    """

    id: int
    path: str
    name: str | None = None
    is_dataset_root: bool = False


def from_proto(pb: table_pb2.BasePath) -> BasePath:
    """Turn a parsed message into a value (for the modules of this package)."""
    return BasePath(
        id=pb.id, path=pb.path, name=pb.name if pb.HasField("name") else None, is_dataset_root=pb.is_dataset_root
    )


def to_proto(base: BasePath) -> table_pb2.BasePath:
    """Turn a value into a message (for the modules of this package)."""
    return table_pb2.BasePath(id=base.id, name=base.name, is_dataset_root=base.is_dataset_root, path=base.path)
