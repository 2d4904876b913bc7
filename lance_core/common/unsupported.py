"""Names and arguments of pylance that lance_core refuses, with the reasons: one table of each.

Everything in these tables is there, so that a program that uses it learns which part is not supported, instead of an
AttributeError or TypeError.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from lance_core.errors import RefusedModuleError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_Class = TypeVar("_Class")

_SEARCH = "lance_core does not search vectors or text"
_INDICES = "lance_core builds indices at one go, with create_scalar_index and create_index"
_TRAINING = "lance_core trains vector indices itself, from a sample in memory"
_MEM_WAL = "lance_core does not write tables through a write-ahead log (MemWAL)"
_OVERLAYS = "lance_core does not write data overlays"
_NAMESPACE = "give the address; dataset and write_dataset take tables of namespaces"
_ARROW = "pylance refuses it, too; use to_table and pyarrow, or DuckDB"
_HEADERS = "give header.NAME when the namespace is opened"
_NATIVE = "it belongs to pylance's native library"
_BLOB_FILES = "write blobs with blob_array and write_dataset"

_VECTOR = [
    "compute_partitions",
    "compute_pq_codes",
    "find_duplicate_pairs",
    "find_duplicate_pairs_in_partition",
    "get_ivf_partition_info",
    "hamming_clustering_for_ivf_partition",
    "hamming_clustering_for_range",
    "hamming_clustering_for_sample",
    "one_pass_assign_ivf_pq_on_accelerator",
    "one_pass_train_ivf_pq_on_accelerator",
    "train_ivf_centroids_on_accelerator",
    "train_pq_codebook_on_accelerator",
]

_METHODS: dict[str, dict[str, str]] = {
    "LanceDataset": {
        **dict.fromkeys(["centroids", "get_ivf_model"], _SEARCH),
        **dict.fromkeys(
            [
                "create_index_uncommitted",
                "commit_existing_index_segments",
                "merge_existing_index_segments",
                "merge_index_metadata",
                "prewarm_index",
            ],
            _INDICES,
        ),
        "remap_row_addrs": "lance_core keeps the index of compactions, but does not read it",
        **dict.fromkeys(["initialize_mem_wal", "mem_wal_index_details", "mem_wal_writer"], _MEM_WAL),
        **dict.fromkeys(["filter", "join", "join_asof", "sort_by", "replace_schema"], _ARROW),
        "from_pydantic_model": "give write_dataset a list of dicts",
        **dict.fromkeys(["io_stats_incremental", "io_stats_snapshot"], _NATIVE),
        "new_file_session": "lance_core.file reads and writes files at any address",
        "partition_expression": _ARROW,
        "storage_options_accessor": "storage options do not change; use latest_storage_options",
    },
    **dict.fromkeys(
        ["DirectoryNamespace", "RestNamespace"], dict.fromkeys(["reset_ops_metrics", "retrieve_ops_metrics"], _NATIVE)
    ),
    "LanceFragment": dict.fromkeys(["partition_expression", "physical_schema"], _ARROW),
    "LanceScanner": dict.fromkeys(["from_batches", "from_dataset", "from_fragment", "scan_batches", "take"], _ARROW),
    "ScannerBuilder": {
        **dict.fromkeys(
            [
                "disable_scoring_autoprojection",
                "with_index_segments",
            ],
            _SEARCH,
        ),
        **dict.fromkeys(["row_addr_prefilter", "scan_stats_callback"], _NATIVE),
        "substrait_aggregate": "use LanceDataset.sql",
    },
    "LanceOperation": dict.fromkeys(["DataOverlay", "DataOverlayFile", "DataOverlayGroup"], _OVERLAYS),
    "MergeInsertBuilder": {"mark_sstables_as_compacted": _MEM_WAL},
    "lance_core": {
        **dict.fromkeys(["FtsToken", "tokenize", "IndexProgress"], _SEARCH),
        **dict.fromkeys(["DedicatedBlobWriter", "PackedBlobWriter", "BlobDescriptorArrayBuilder"], _BLOB_FILES),
        **dict.fromkeys(["BlobColumn", "BlobDescriptor", "BlobArray"], "use blob_array, take_blobs and read_blobs"),
        **dict.fromkeys(
            ["ExecutionPlan", "FFILanceTableProvider", "bytes_read_counter", "iops_counter", "set_logger", "simd_info"],
            _NATIVE,
        ),
        "ScanStatistics": _NATIVE,
        **dict.fromkeys(["LsmPointLookupPlanner", "LsmScanner", "LsmVectorSearchPlanner"], _MEM_WAL),
        **dict.fromkeys(
            ["CompactedSsTable", "ShardSnapshot", "ShardWriter", "ShardingField", "ShardingSpec"], _MEM_WAL
        ),
        "evaluate_sharding_spec": _MEM_WAL,
        "CleanupReferencedBranch": "branches keep the versions that they come from",
    },
    "lance_core.blob": dict.fromkeys(
        ["BlobArray", "BlobColumn", "BlobIterator"], "use blob_array, take_blobs and read_blobs"
    ),
    "lance_core.dataset": dict.fromkeys(["VectorIndexReader", "VectorSearchQuery", "serialize_row_addrs"], _SEARCH),
    "lance_core.fragment": dict.fromkeys(
        ["RowDatasetVersionMeta", "RowIdMeta", "RowIdSequence"], "row ids and versions of FragmentMetadata are bytes"
    ),
    "lance_core.indices": dict.fromkeys(["IndexConfig", "IndexFileVersion", "IndexSegment"], _INDICES)
    | dict.fromkeys(["IndicesBuilder", "IvfModel", "PqModel"], _SEARCH),
    "lance_core.namespace": {"DynamicContextProvider": _HEADERS, "RestAdapter": _NATIVE},
    "lance_core.otel": dict.fromkeys(
        ["lance_metrics_catalog", "register_lance_metrics_recorder", "snapshot_lance_metrics"], _NATIVE
    ),
    "lance_core.progress": {"IndexProgress": _INDICES},
    "lance_core.udf": {
        "BatchUDFCheckpoint": "give batch_udf a checkpoint_file",
        "normalize_transform": "add_columns takes all forms",
    },
    "lance_core.vector": dict.fromkeys(_VECTOR, _SEARCH),
}
_PROPERTIES = {"partition_expression", "physical_schema"}
"""What is no method in pylance."""

_MODULES: dict[str, str] = {
    "arrow": "lance_core has no image types; store images as blobs",
    "bitmap": "fragment_ids are sets of numbers",
    "debug": _NATIVE,
    "dependencies": _NATIVE,
    "download": _SEARCH,
    "hf": "write_dataset takes Hugging Face data sets",
    "io": _NATIVE,
    "log": _NATIVE,
    "mem_wal": _MEM_WAL,
    "pydantic": "give write_dataset a list of dicts",
    "torch.bench_utils": _SEARCH,
    "torch.distance": _SEARCH,
    "torch.kmeans": _SEARCH,
    "tracing": _NATIVE,
    "util": _SEARCH,
}
"""Modules of pylance that lance_core does not have."""


REFUSED: Mapping[str, str] = {
    f"{owner}.{name}": reason for owner, members in _METHODS.items() for name, reason in members.items()
} | {f"lance_core.{name}": reason for name, reason in _MODULES.items()}
"""Name to reason: ``Class.method``, ``lance_core.module.function`` and ``lance_core.module``."""

REFUSED_ARGUMENTS: Mapping[str, str] = {
    **dict.fromkeys(["namespace_client", "namespace_client_managed_versioning", "table_id"], _NAMESPACE),
    **dict.fromkeys(
        [
            "index_segments",
            "disable_scoring_autoprojection",
            "document_granularity",
        ],
        _SEARCH,
    ),
    **dict.fromkeys(["row_addr_allowlist", "row_addr_blocklist", "scan_stats_callback"], _NATIVE),
    **dict.fromkeys(["format_version", "progress_callback"], _INDICES),
    **dict.fromkeys(
        [
            "accelerator",
            "ivf_centroids_file",
            "precomputed_partition_dataset",
            "skip_transpose",
            "streaming_coreset_rate",
            "streaming_refine_passes",
            "streaming_sample_rate",
        ],
        _TRAINING,
    ),
    "blob_pack_file_size_threshold": "set it for a column, with blob_field",
    "binary_copy_read_batch_bytes": "pages are copied in steps of their own size",
    "context_provider": _HEADERS,
    "delete_concurrency": "the store decides how many files are deleted at a time",
    "delete_rate_limit": "files are deleted in requests of a thousand",
    "external_blob_mode": "external blobs stay where they are",
    "include_files": "use explain_cleanup_old_versions without it, which tells all files",
    "max_files": "all files are told",
    "read_params": "give storage_options",
    "serialized_manifest": "give the version",
    "use_legacy_format": "give data_storage_version='0.1', which cannot be written",
}
"""Argument to reason; wherever a function has one of these, it must be None or pylance's default."""

_PYLANCE_DEFAULTS: Mapping[str, object] = {
    "document_granularity": "row",
    "external_blob_mode": "reference",
    "max_files": 1000,
}
"""Defaults in pylance of arguments in `REFUSED_ARGUMENTS` where they are neither None nor False."""


class _RefusedModules:
    """Tells why a module of pylance cannot be imported; Python asks it after the finders that may have the module."""

    @staticmethod
    def find_spec(fullname: str, path: object = None, target: object = None) -> None:
        """Raise an error if the module is refused.

        Raises:
            RefusedModuleError: It is.
        """
        del path, target
        package, _, name = fullname.partition(".")
        if package == "lance_core" and name in _MODULES:
            raise RefusedModuleError(f"module {fullname} is not supported: {_MODULES[name]}")


sys.meta_path.append(_RefusedModules)


def refused(name: str) -> Callable[..., NoReturn]:
    """Placeholder for a name of pylance that lance_core refuses, by its name in `REFUSED`."""
    reason = REFUSED[name]

    def refuse(*_args: Any, **_kwargs: Any) -> NoReturn:
        raise UnsupportedError(f"{name} is not supported: {reason}")

    refuse.__name__ = name.rpartition(".")[2]
    refuse.__qualname__ = name
    refuse.__doc__ = f"Not supported: {reason}."
    return refuse


def with_refused(cls: type[_Class]) -> type[_Class]:
    """Add the names of pylance that a class refuses, as `REFUSED` has them."""
    for name in _METHODS[cls.__name__]:
        member = refused(f"{cls.__name__}.{name}")
        setattr(cls, name, property(member) if name in _PROPERTIES else member)
    return cls


def refuse_given(function: str, **given: object) -> None:
    """Refuse arguments that lance_core does not support; each must be None, False or pylance's default.

    Args:
        function: Name of the function, for the message.
        given: The arguments, by their names in `REFUSED_ARGUMENTS`.

    Raises:
        UnsupportedError: One is given.
    """
    for name, value in given.items():
        if value is None or value is False:
            continue
        if name not in _PYLANCE_DEFAULTS or value != _PYLANCE_DEFAULTS[name]:
            raise UnsupportedError(f"argument {name!r} of {function} is not supported: {REFUSED_ARGUMENTS[name]}")


def late_names(module: str, names: Mapping[str, str] | None = None) -> Callable[[str], Any]:
    """The ``__getattr__`` of a module: names that are imported when they are asked for, and those that are refused.

    What was imported becomes a global of the module, so that it is found at once the next time.

    Args:
        module: Name of the module.
        names: Name to the module that has it, or to ``module:name`` if it has another name there.
    """
    modules = dict(names or {})

    def find(name: str) -> Any:
        if name in modules:
            module_name, _, other = modules[name].partition(":")
            value = getattr(import_module(module_name), other or name)
            setattr(sys.modules[module], name, value)
            return value
        path = f"{module}.{name}"
        if module == "lance_core" and name in _MODULES:
            raise RefusedModuleError(f"module {path} is not supported: {_MODULES[name]}")
        if path in REFUSED:
            return refused(path)
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return find
