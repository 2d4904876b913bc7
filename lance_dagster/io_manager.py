"""The IO manager: assets in, Lance tables out, and back."""

from typing import Any, Literal

import dagster as dg
from pydantic import Field

from lance_core.errors import UnsupportedError


class LanceIOManager(dg.ConfigurableIOManager):
    """Stores every asset as the Lance table ``<root>/<key parts>.lance``.

    Writes ``pyspark.sql.DataFrame`` (classic and Connect), ``pa.Table``, ``pa.RecordBatchReader``, pandas and Polars
    frames, by the value's type. Loads what the input's annotation names; without one a Spark frame if ``spark`` is
    configured, else a ``pa.Table``. ``lance_core.LanceDataset`` loads the table itself, lazily.

    A partitioned asset needs the metadata ``partition_expr``: the column that holds the partition key, or a dict
    dimension -> column. Each run replaces exactly the rows of its partition keys, in one atomic commit.

    Metadata on the asset, or given in the run by ``context.add_output_metadata`` (wins): ``mode``, ``partition_expr``,
    ``lance/out_of_partition``, ``lance/uri``, ``lance/schema``. Metadata on an ``AssetIn``: ``columns`` (names),
    ``filter`` (SQL predicate), ``version`` (number) or ``tag``.
    """

    root: str = Field(description="Folder or URI that holds the tables.")
    storage_options: dict[str, str] = Field(default_factory=dict, description="Settings of the object store.")
    spark: dg.ResourceDependency[Any] = None
    mode: Literal["overwrite", "append", "error", "ignore", "merge"] = Field(
        default="overwrite",
        description="For a partitioned asset these speak of the run's partitions only, never of the whole table.",
    )
    out_of_partition: Literal["error", "drop", "allow"] = Field(
        default="error", description="What happens to rows outside of the run's partitions."
    )
    on_retry: Literal["reuse", "rewrite"] = Field(
        default="reuse", description="Whether a retried step takes over what its earlier attempt committed."
    )
    tag_runs: bool = Field(default=True, description="Tag the version that each run made: run-<first 8 of the run id>.")
    preview_rows: int = Field(default=0, description="Rows shown in the metadata `lance/preview`; 0 shows none.")

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Write an asset (or some partitions of it) in one commit."""
        raise UnsupportedError("handle_output")

    def load_input(self, context: dg.InputContext) -> Any:
        """Read an asset, or the partitions of it that the mapping asks for."""
        raise UnsupportedError("load_input")
