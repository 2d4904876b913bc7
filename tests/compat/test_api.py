"""What pylance's public API has and lance_core has not, name by name and argument by argument, with the reason.

Both directions are checked: what is missing must be listed, and what is listed must be missing.
"""

import importlib
import inspect
import sys

import lance
import lance.dataset
import lance.fragment
import lance.optimize
import pytest

import lance_core
from lance_core import arguments, scanner

SEARCH = "vector and text search, and the indices for them, are not built or used"
INDICES = "only zone maps are built; other indices are kept right"
MEM_WAL = "a write-ahead log in memory (MemWAL) is refused by name"
OVERLAYS = "data overlays are refused by name, as pylance does unless told otherwise"
NAMESPACE = "catalogs of tables are out of scope; an address is enough"
CACHES = "no caches that live longer than a dataset object"
ARROW = "of pyarrow's Dataset: pylance raises NotImplementedError or crashes"
NATIVE = "of the native library: its counters, log, processor, planner"
BLOBS = "writing blob files by hand; blob_array and write_dataset do it"

MISSING = {
    "LanceDataset": {
        "centroids": SEARCH,
        "get_ivf_model": SEARCH,
        "prewarm_index": INDICES,
        "create_index": INDICES,
        "create_index_uncommitted": INDICES,
        "commit_existing_index_segments": INDICES,
        "merge_existing_index_segments": INDICES,
        "merge_index_metadata": INDICES,
        "remap_row_addrs": "index of compactions (fragment reuse) is kept, not read",
        "initialize_mem_wal": MEM_WAL,
        "mem_wal_index_details": MEM_WAL,
        "mem_wal_writer": MEM_WAL,
        "filter": ARROW,
        "join": ARROW,
        "join_asof": ARROW,
        "sort_by": ARROW,
        "replace_schema": ARROW,
        "partition_expression": ARROW,
        "from_pydantic_model": "write_dataset takes a list of dicts",
        "io_stats_incremental": NATIVE,
        "io_stats_snapshot": NATIVE,
        "new_file_session": "lance_core.file reads and writes files below any address",
        "session": CACHES,
        "storage_options_accessor": "storage options do not change; latest_storage_options is there",
    },
    "LanceFragment": {"partition_expression": ARROW, "physical_schema": ARROW},
    "FragmentMetadata": {},
    "DataFile": {"create": "LanceFragment.create_from_file makes the fragment of a file"},
    "DeletionFile": {
        "asdict": "a dataclass here",
        "from_json": "FragmentMetadata.from_json",
        "json": "FragmentMetadata.to_json",
        "path": "LanceFragment.deletion_file",
    },
    "LanceScanner": {
        "from_batches": ARROW,
        "from_dataset": ARROW,
        "from_fragment": ARROW,
        "scan_batches": ARROW,
        "take": ARROW,
    },
    "ScannerBuilder": {
        "disable_scoring_autoprojection": SEARCH,
        "fast_search": SEARCH,
        "full_text_search": SEARCH,
        "minhash_search": SEARCH,
        "nearest": SEARCH,
        "with_index_segments": SEARCH,
        "row_addr_prefilter": "for engines that search by themselves; take rows by _rowaddr",
        "scan_stats_callback": NATIVE,
        "substrait_aggregate": "dataset.sql has aggregates",
    },
    "LanceOperation": {"DataOverlay": OVERLAYS, "DataOverlayFile": OVERLAYS, "DataOverlayGroup": OVERLAYS},
    "MergeInsertBuilder": {
        "analyze_plan_batches": NATIVE,
        "execute_batches": NATIVE,
        "execute_uncommitted_batches": NATIVE,
    },
    "CompactionOptions": dict.fromkeys(
        ["clear", "copy", "fromkeys", "get", "items", "keys", "pop", "popitem", "setdefault", "update", "values"],
        "a dataclass here, a dict there; both functions take either",
    ),
    "CompactionPlan": {"from_json": "tasks have JSON", "json": "tasks have JSON"},
}
COMPLETE = {
    "Branches", "Compaction", "CompactionMetrics", "CompactionTask", "ColumnOrdering", "DataStatistics",
    "DatasetBasePath", "DatasetDelta", "DatasetOptimizer", "FieldStatistics", "FragmentSession", "Index", "IndexFile",
    "LanceStats", "RewriteResult", "SqlQuery", "SqlQueryBuilder", "Tags", "Transaction",
}  # fmt: skip

MODULE = {
    **dict.fromkeys(["BlobColumn", "BlobDescriptor", "BlobArray"], "BlobType, blob_array and take_blobs"),
    **dict.fromkeys(["BlobDescriptorArrayBuilder", "DedicatedBlobWriter", "PackedBlobWriter"], BLOBS),
    **dict.fromkeys(["FtsToken", "tokenize", "IndexProgress"], SEARCH),
    **dict.fromkeys(
        ["ExecutionPlan", "FFILanceTableProvider", "LsmPointLookupPlanner", "LsmScanner", "LsmVectorSearchPlanner"],
        NATIVE,
    ),
    **dict.fromkeys(["bytes_read_counter", "iops_counter", "set_logger", "simd_info", "ScanStatistics"], NATIVE),
    **dict.fromkeys(
        ["CompactedSsTable", "ShardSnapshot", "ShardWriter", "ShardingField", "ShardingSpec", "evaluate_sharding_spec"],
        MEM_WAL,
    ),
    "CleanupReferencedBranch": "branches keep the versions they come from; they are not cleaned from elsewhere",
    **dict.fromkeys(["json_to_schema", "schema_to_json"], "Arrow schemas have a form of their own: schema.serialize()"),
    "io": "a module of helpers",
}

# Arguments of pylance that are refused by name (UnsupportedError), wherever they may be given.
REFUSED = {
    **dict.fromkeys(["commit_lock"], "a table elsewhere (manifest_store) decides where a store cannot"),
    **dict.fromkeys(["namespace_client", "table_id"], NAMESPACE),
    **dict.fromkeys(["session"], CACHES),
    **dict.fromkeys(
        ["nearest", "full_text_query", "fast_search", "index_segments", "disable_scoring_autoprojection"], SEARCH
    ),
    **dict.fromkeys(["row_addr_allowlist", "row_addr_blocklist", "scan_stats_callback"], NATIVE),
    **dict.fromkeys(["default_scan_options", "read_params"], "options are given to each scan"),
    **dict.fromkeys(["use_legacy_format"], "data_storage_version says it"),
    **dict.fromkeys(["external_blob_mode", "blob_pack_file_size_threshold", "max_page_bytes"], "field metadata"),
    **dict.fromkeys(["defer_index_remap", "binary_copy_read_batch_bytes"], "compaction rewrites no indices"),
}

# Arguments that nobody takes here.
ARGUMENTS = {
    "LanceDataset.cleanup_old_versions": {"delete_rate_limit", "delete_concurrency"},
    "LanceDataset.explain_cleanup_old_versions": {"delete_rate_limit", "include_files", "max_files"},
    "LanceDataset.count_rows": {"kwargs"},
    "LanceDataset.sample": {"kwargs"},
    "Compaction.commit": {"options"},
    "LanceDataset.create_scalar_index": {"progress_callback", "format_version", "document_granularity"},
    "LanceDataset.commit": {"namespace_client_managed_versioning"},
    "LanceDataset.read_blob_ranges": {"selector", "io_buffer_size", "preserve_order"},
    "LanceDataset.read_blobs": {"io_buffer_size"},
    "LanceDataset.to_pandas": {"blob_mode"},
    "LanceFragment.to_pandas": {"blob_mode"},
    "LanceScanner.to_pandas": {"blob_mode"},
    "DatasetOptimizer.disable_auto_cleanup": {"kwargs"},
    "DatasetOptimizer.enable_auto_cleanup": {"kwargs"},
    "DatasetOptimizer.optimize_indices": {"kwargs"},
    "CompactionTask.from_json": {"json"},
    "RewriteResult.from_json": {"json"},
}

SCAN = set(inspect.signature(scanner.make_scanner).parameters)
HINTS = set(arguments._HINTS)
MISSING_ARGUMENTS = set(arguments._MISSING)
PLACES = [
    "", ".dataset", ".fragment", ".scanner", ".merge_insert", ".operations", ".optimize", ".stats", ".sql_query",
    ".methods.fragment_rows", ".index_entries", ".delta",
]  # fmt: skip


def theirs_named(name):
    for module in ("lance", "lance.dataset", "lance.fragment", "lance.optimize"):
        if hasattr(sys.modules[module], name):
            return getattr(sys.modules[module], name)
    raise AssertionError(name)


def ours_named(name):
    for place in PLACES:
        module = importlib.import_module(f"lance_core{place}")
        if hasattr(module, name):
            return getattr(module, name)
    raise AssertionError(name)


def public(thing):
    return {name for name in dir(thing) if not name.startswith("_")}


def parameters(function):
    try:
        found = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return None
    return {name: one for name, one in found.items() if name not in {"self", "cls", "dataset", "fragment"}}


@pytest.mark.parametrize("name", sorted({*MISSING, *COMPLETE}))
def test_members(name):
    theirs, ours = theirs_named(name), ours_named(name)
    instance = {one for one in getattr(ours, "__annotations__", {}) if not one.startswith("_")}
    assert public(theirs) - public(ours) - instance == set(MISSING.get(name, ()))


def test_names_of_the_module():
    assert {one for one in lance.__all__ if one[0] != "_"} - public(lance_core) == set(MODULE)


def test_refused_arguments():
    unused = {"auto_cleanup_options", "batch_size_bytes", "compaction_mode", "include_deleted_rows", "order_by"}
    assert set(REFUSED) == MISSING_ARGUMENTS - SCAN - unused - {"progress", "prefilter", "strict_batch_size"}


@pytest.mark.parametrize("name", sorted({*MISSING, *COMPLETE} - {"CompactionOptions"}))
def test_arguments(name):
    theirs, ours = theirs_named(name), ours_named(name)
    for member in sorted(public(theirs) & public(ours)):
        if not callable(getattr(theirs, member)) or inspect.isclass(getattr(theirs, member)):
            continue
        expected, found = parameters(getattr(theirs, member)), parameters(getattr(ours, member))
        if expected is None or found is None:
            continue
        lacking = set(expected) - set(found)
        if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in found.values()):
            kept = ARGUMENTS.get(f"{name}.{member}", set())
            lacking = {one for one in lacking if one in kept or one not in SCAN | HINTS | MISSING_ARGUMENTS | DELEGATED}
        assert lacking == ARGUMENTS.get(f"{name}.{member}", set()), member
        for one in set(expected) & set(found):
            is_same = repr(expected[one].default) == repr(found[one].default)
            assert is_same or (name, member, one) in DEFAULTS, (member, one)


# Taken by the function that the keyword arguments are handed to.
DELEGATED = {
    "kwargs", "columns", "filter", "limit", "offset", "fragments",
    *inspect.signature(lance_core.write_dataset).parameters,
    *inspect.signature(lance_core.LanceDataset.commit).parameters,
    *lance_core.CompactionOptions.__annotations__,
}  # fmt: skip
DEFAULTS = {
    ("LanceDataset", "deep_clone", "reference"),
    ("LanceDataset", "shallow_clone", "reference"),
    ("Compaction", "plan", "options"),
    ("Compaction", "execute", "options"),
    ("LanceFragment", "create", "max_rows_per_group"),
}


@pytest.mark.parametrize(
    ("module", "name", "expected"),
    [
        (lance, "dataset", set()),
        (lance, "write_dataset", set()),
        (
            lance.fragment,
            "write_fragments",
            {"allow_external_blob_outside_bases", "enable_stable_row_ids", "initial_bases"},
        ),
    ],
)
def test_functions(module, name, expected):
    theirs, ours = (inspect.signature(getattr(one, name)).parameters for one in (module, lance_core))
    assert set(theirs) - set(ours) - HINTS - MISSING_ARGUMENTS == expected
    for one in set(theirs) & set(ours) - {"uri"}:
        assert repr(theirs[one].default) == repr(ours[one].default), one
