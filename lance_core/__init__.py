"""The Lance table format in Python: write, read, change and maintain datasets."""

from lance_core.dataset import LanceDataset, dataset, write_dataset
from lance_core.errors import LanceError
from lance_core.format.fragment import DataFile, DeletionFile
from lance_core.fragment import FragmentMetadata, LanceFragment, write_fragments
from lance_core.operations import LanceOperation, Transaction
from lance_core.optimize import (
    Compaction,
    CompactionMetrics,
    CompactionOptions,
    CompactionPlan,
    CompactionTask,
    RewriteResult,
)

__all__ = [
    "Compaction",
    "CompactionMetrics",
    "CompactionOptions",
    "CompactionPlan",
    "CompactionTask",
    "DataFile",
    "DeletionFile",
    "FragmentMetadata",
    "LanceDataset",
    "LanceError",
    "LanceFragment",
    "LanceOperation",
    "RewriteResult",
    "Transaction",
    "dataset",
    "write_dataset",
    "write_fragments",
]
