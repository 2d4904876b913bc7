"""The Lance table format in Python: write, read, change and maintain datasets."""

from typing import TYPE_CHECKING, Any

from lance_core.blob import Blob, BlobFile, BlobType, blob_array, blob_field
from lance_core.branches import Branches
from lance_core.common.unsupported import late_names
from lance_core.dataset import LanceDataset, dataset
from lance_core.delta import DatasetDelta
from lance_core.encoding.profiles import CompressionProfile
from lance_core.errors import LanceError
from lance_core.format.table.fragment import DataFile, DeletionFile
from lance_core.fragment import FragmentMetadata, LanceFragment
from lance_core.indices import IndexDescription, IndexSegmentDescription
from lance_core.scan.ordering import ColumnOrdering
from lance_core.scanner import LanceScanner, ScannerBuilder
from lance_core.table.idempotency import IDEMPOTENCY_KEY
from lance_core.tags import Tags
from lance_core.udf import BatchUDF, batch_udf
from lance_core.values.base_paths import DatasetBasePath
from lance_core.values.index_entries import Index, IndexFile
from lance_core.values.stats import DataStatistics, FieldStatistics, LanceStats
from lance_core.write import write_dataset, write_fragments

if TYPE_CHECKING:
    from lance_core.expression import Expression, make_expression
    from lance_core.importing.table import ImportResult, import_table
    from lance_core.maintenance.cleanup import CleanupExplanation, CleanupStats
    from lance_core.maintenance.cleanup_plan import CandidateFile as CleanupCandidateFile
    from lance_core.merge_insert import MergeInsertBuilder
    from lance_core.optimize import (
        Compaction,
        CompactionMetrics,
        CompactionOptions,
        CompactionPlan,
        CompactionTask,
        RewriteResult,
    )
    from lance_core.reports.verification import (
        RepairPlan,
        RepairStep,
        VerifyProblem,
        VerifyReport,
        plan_repair,
        repair,
        verify,
    )
    from lance_core.schema import LanceSchema, json_to_schema, schema_to_json
    from lance_core.values.operations import LanceOperation, Transaction
    from lance_core.values.session import Session

    __version__: str

__all__ = [
    "IDEMPOTENCY_KEY",
    "BatchUDF",
    "Blob",
    "BlobFile",
    "BlobType",
    "Branches",
    "CleanupCandidateFile",
    "CleanupExplanation",
    "CleanupStats",
    "ColumnOrdering",
    "Compaction",
    "CompactionMetrics",
    "CompactionOptions",
    "CompactionPlan",
    "CompactionTask",
    "CompressionProfile",
    "DataFile",
    "DataStatistics",
    "DatasetBasePath",
    "DatasetDelta",
    "DeletionFile",
    "Expression",
    "FieldStatistics",
    "FragmentMetadata",
    "ImportResult",
    "Index",
    "IndexDescription",
    "IndexFile",
    "IndexSegmentDescription",
    "LanceDataset",
    "LanceError",
    "LanceFragment",
    "LanceOperation",
    "LanceScanner",
    "LanceSchema",
    "LanceStats",
    "MergeInsertBuilder",
    "RepairPlan",
    "RepairStep",
    "RewriteResult",
    "ScannerBuilder",
    "Session",
    "Tags",
    "Transaction",
    "VerifyProblem",
    "VerifyReport",
    "__version__",
    "batch_udf",
    "blob_array",
    "blob_field",
    "dataset",
    "import_table",
    "json_to_schema",
    "make_expression",
    "plan_repair",
    "repair",
    "schema_to_json",
    "verify",
    "write_dataset",
    "write_fragments",
]

# What few programs need: every Spark worker imports this module.
_find = late_names(
    __name__,
    {
        "CleanupCandidateFile": "lance_core.maintenance.cleanup_plan:CandidateFile",
        "CleanupExplanation": "lance_core.maintenance.cleanup",
        "CleanupStats": "lance_core.maintenance.cleanup",
        "Compaction": "lance_core.optimize",
        "CompactionMetrics": "lance_core.optimize",
        "CompactionOptions": "lance_core.optimize",
        "CompactionPlan": "lance_core.optimize",
        "CompactionTask": "lance_core.optimize",
        "Expression": "lance_core.expression",
        "LanceOperation": "lance_core.values.operations",
        "LanceSchema": "lance_core.schema",
        "MergeInsertBuilder": "lance_core.merge_insert",
        "RewriteResult": "lance_core.optimize",
        "Session": "lance_core.values.session",
        "Transaction": "lance_core.values.operations",
        "RepairPlan": "lance_core.reports.verification",
        "RepairStep": "lance_core.reports.verification",
        "VerifyProblem": "lance_core.reports.verification",
        "VerifyReport": "lance_core.reports.verification",
        "json_to_schema": "lance_core.schema",
        "make_expression": "lance_core.expression",
        "schema_to_json": "lance_core.schema",
        "ImportResult": "lance_core.importing.table",
        "import_table": "lance_core.importing.table",
        "plan_repair": "lance_core.reports.verification",
        "repair": "lance_core.reports.verification",
        "verify": "lance_core.reports.verification",
    },
)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415 a slow import

        return version("lance-dagster")
    return _find(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
