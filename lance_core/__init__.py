"""The Lance table format in Python: write, read, change and maintain datasets."""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from lance_core.common.unsupported import late_names

if TYPE_CHECKING:
    from lance_core.blob import Blob, BlobFile, BlobType, blob_array, blob_field
    from lance_core.branches import Branches
    from lance_core.dataset import LanceDataset, dataset
    from lance_core.delta import DatasetDelta
    from lance_core.encoding.profiles import CompressionProfile
    from lance_core.errors import LanceError
    from lance_core.expression import Expression, make_expression
    from lance_core.format.table.fragment import DataFile, DeletionFile
    from lance_core.fragment import FragmentMetadata, LanceFragment
    from lance_core.importing.table import ImportResult, import_table
    from lance_core.indices import IndexDescription, IndexSegmentDescription
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
    from lance_core.scan.ordering import ColumnOrdering
    from lance_core.scanner import LanceScanner, ScannerBuilder
    from lance_core.schema import LanceSchema, json_to_schema, schema_to_json
    from lance_core.table.idempotency import IDEMPOTENCY_KEY
    from lance_core.tags import Tags
    from lance_core.udf import BatchUDF, batch_udf
    from lance_core.values.base_paths import DatasetBasePath
    from lance_core.values.index_entries import Index, IndexFile
    from lance_core.values.operations import LanceOperation, Transaction
    from lance_core.values.session import Session
    from lance_core.values.stats import DataStatistics, FieldStatistics, LanceStats
    from lance_core.write import write_dataset, write_fragments

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

# Names are imported when they are asked for: a process that loads definitions of Dagster or that a Spark worker begins
# needs few of them, and neither numpy nor Arrow.
_find = late_names(
    __name__,
    {
        "batch_udf": "lance_core.udf",
        "BatchUDF": "lance_core.udf",
        "Blob": "lance_core.blob",
        "blob_array": "lance_core.blob",
        "blob_field": "lance_core.blob",
        "BlobFile": "lance_core.blob",
        "BlobType": "lance_core.blob",
        "Branches": "lance_core.branches",
        "CleanupCandidateFile": "lance_core.maintenance.cleanup_plan:CandidateFile",
        "CleanupExplanation": "lance_core.maintenance.cleanup",
        "CleanupStats": "lance_core.maintenance.cleanup",
        "ColumnOrdering": "lance_core.scan.ordering",
        "Compaction": "lance_core.optimize",
        "CompactionMetrics": "lance_core.optimize",
        "CompactionOptions": "lance_core.optimize",
        "CompactionPlan": "lance_core.optimize",
        "CompactionTask": "lance_core.optimize",
        "CompressionProfile": "lance_core.encoding.profiles",
        "DataFile": "lance_core.format.table.fragment",
        "dataset": "lance_core.dataset",
        "DatasetBasePath": "lance_core.values.base_paths",
        "DatasetDelta": "lance_core.delta",
        "DataStatistics": "lance_core.values.stats",
        "DeletionFile": "lance_core.format.table.fragment",
        "Expression": "lance_core.expression",
        "FieldStatistics": "lance_core.values.stats",
        "FragmentMetadata": "lance_core.fragment",
        "IDEMPOTENCY_KEY": "lance_core.table.idempotency",
        "import_table": "lance_core.importing.table",
        "ImportResult": "lance_core.importing.table",
        "Index": "lance_core.values.index_entries",
        "IndexDescription": "lance_core.indices",
        "IndexFile": "lance_core.values.index_entries",
        "IndexSegmentDescription": "lance_core.indices",
        "json_to_schema": "lance_core.schema",
        "LanceDataset": "lance_core.dataset",
        "LanceError": "lance_core.errors",
        "LanceFragment": "lance_core.fragment",
        "LanceOperation": "lance_core.values.operations",
        "LanceScanner": "lance_core.scanner",
        "LanceSchema": "lance_core.schema",
        "LanceStats": "lance_core.values.stats",
        "make_expression": "lance_core.expression",
        "MergeInsertBuilder": "lance_core.merge_insert",
        "plan_repair": "lance_core.reports.verification",
        "repair": "lance_core.reports.verification",
        "RepairPlan": "lance_core.reports.verification",
        "RepairStep": "lance_core.reports.verification",
        "RewriteResult": "lance_core.optimize",
        "ScannerBuilder": "lance_core.scanner",
        "schema_to_json": "lance_core.schema",
        "Session": "lance_core.values.session",
        "Tags": "lance_core.tags",
        "Transaction": "lance_core.values.operations",
        "verify": "lance_core.reports.verification",
        "VerifyProblem": "lance_core.reports.verification",
        "VerifyReport": "lance_core.reports.verification",
        "write_dataset": "lance_core.write",
        "write_fragments": "lance_core.write",
    },
)
_MODULES = frozenset(
    {
        "blob",
        "branches",
        "delta",
        "expression",
        "fragment",
        "indices",
        "merge_insert",
        "optimize",
        "scanner",
        "schema",
        "tags",
        "udf",
        "write",
    }
)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415 a slow import

        return version("lance-dagster")
    return import_module(f"{__name__}.{name}") if name in _MODULES else _find(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """The package, whose attribute ``dataset`` is the function also when the module of that name is imported."""

    def __setattr__(self, name: str, value: object) -> None:
        if name == "dataset" and isinstance(value, ModuleType):
            value = value.dataset
        super().__setattr__(name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        """Be sent by name, as modules are, with functions that use it."""
        return import_module, (self.__name__,)


sys.modules[__name__].__class__ = _Package
