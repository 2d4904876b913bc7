"""Calls that a type checker accepts or refuses, so that editors complete the names; checked with the sources.

Each ignored error must occur: without it the comment itself is one.
"""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, assert_type

import lance_core
from lance_core.spark import compact_lance, delete_lance, read_lance

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from lance_dagster import LanceResource


def scans(table: lance_core.LanceDataset, fragment: lance_core.LanceFragment) -> None:
    assert_type(table.scanner(["a"], "a > 1", nearest=None, with_row_id=True), lance_core.LanceScanner)
    table.scanner(["a"], None, 1, 0, None, 100, 1 << 20, 4, 2, None, [fragment], order_by=["a"])
    read: pa.Table = table.to_table(columns=["a"], batch_size=10, use_scalar_index=False, blob_handling="all_binary")
    table.to_batches(batch_size_bytes=1 << 20, strict_batch_size=True)
    table.to_pandas(blob_mode="bytes", include_deleted_rows=True)
    table.head(3, late_materialization=["a"])
    fragment.to_table(["a"], with_row_address=True)
    fragment.to_batches(rows=(0, 1), batch_size=1)
    table.scanner(nonsense=1)  # pyright: ignore[reportCallIssue]
    table.to_table(batch_size="10")  # pyright: ignore[reportArgumentType]
    table.to_table(with_row_id=1.5)  # pyright: ignore[reportArgumentType]
    fragment.to_batches(nonsense=1)  # pyright: ignore[reportCallIssue]
    del read


def writes(table: lance_core.LanceDataset, data: Any) -> None:
    lance_core.write_dataset(data, "x", mode="append", max_rows_per_file=10, commit_message="m")
    table.insert(data, max_bytes_per_file=10, transaction_properties={"a": "b"})
    table.commit_batch(table, [], commit_timeout=timedelta(seconds=1))
    table.insert(data, nonsense=1)  # pyright: ignore[reportCallIssue]
    table.insert(data, max_rows_per_file="10")  # pyright: ignore[reportArgumentType]


def maintains(table: lance_core.LanceDataset, lance: LanceResource) -> None:
    table.optimize.compact_files(target_rows_per_fragment=10, num_threads=1)
    lance.write("a", None, schema=None)
    lance.compact("a", max_source_bytes=1)
    lance.cleanup("a", older_than=timedelta(days=1))
    table.optimize.compact_files(nonsense=1)  # pyright: ignore[reportCallIssue]
    lance.write("a", None, nonsense=1)  # pyright: ignore[reportCallIssue]
    lance.compact("a", nonsense=1)  # pyright: ignore[reportCallIssue]
    lance.cleanup("a", nonsense=1)  # pyright: ignore[reportCallIssue]


def spark(session: SparkSession) -> None:
    frame: DataFrame = read_lance(session, "x", columns=["a"])
    del frame
    delete_lance(session, "x", "a > 1", commit_message="m")
    compact_lance(session, "x", batch_size=1)
    read_lance(session, "x", nonsense=1)  # pyright: ignore[reportCallIssue]
    delete_lance(session, "x", "a > 1", nonsense=1)  # pyright: ignore[reportCallIssue]
    compact_lance(session, "x", nonsense=1)  # pyright: ignore[reportCallIssue]
