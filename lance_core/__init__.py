"""The Lance table format in Python: write, read, change and maintain datasets."""

from lance_core.base_paths import DatasetBasePath
from lance_core.blob import Blob, BlobFile, BlobType, blob_array, blob_field
from lance_core.dataset import LanceDataset, dataset
from lance_core.errors import LanceError
from lance_core.format.fragment import DataFile, DeletionFile
from lance_core.fragment import FragmentMetadata, LanceFragment
from lance_core.index_entries import Index, IndexFile
from lance_core.operations import LanceOperation, Transaction
from lance_core.optimize import (
    Compaction,
    CompactionMetrics,
    CompactionOptions,
    CompactionPlan,
    CompactionTask,
    RewriteResult,
)
from lance_core.udf import BatchUDF, batch_udf
from lance_core.verification import VerifyProblem, VerifyReport, verify
from lance_core.write import write_dataset, write_fragments

__all__ = [
    "BatchUDF",
    "Blob",
    "BlobFile",
    "BlobType",
    "Compaction",
    "CompactionMetrics",
    "CompactionOptions",
    "CompactionPlan",
    "CompactionTask",
    "DataFile",
    "DatasetBasePath",
    "DeletionFile",
    "FragmentMetadata",
    "Index",
    "IndexFile",
    "LanceDataset",
    "LanceError",
    "LanceFragment",
    "LanceOperation",
    "RewriteResult",
    "Transaction",
    "VerifyProblem",
    "VerifyReport",
    "batch_udf",
    "blob_array",
    "blob_field",
    "dataset",
    "verify",
    "write_dataset",
    "write_fragments",
]
