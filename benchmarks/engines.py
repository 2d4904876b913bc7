"""What is compared: how each engine writes a table, opens it, and is asked the same questions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Callable

    from data import DataSet

    from lance_core.encoding.profiles import CompressionProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """One engine.

    Attributes:
        write: Writes a table to a folder.
        append: Adds a table to one that is there; None if it cannot.
        open: Opens a folder: something with `to_table`, `to_batches` and `take`.
        sql: Filters are SQL text; else pyarrow expressions.
        count_io: Requests and bytes that a call on a handle makes; None if unknown.
        module: What has to be imported.
    """

    write: Callable[[pa.Table, str], Any]
    append: Callable[[pa.Table, str], Any] | None
    open: Callable[[str], Any]
    sql: bool
    count_io: Callable[[str, Callable[[Any], Any], Callable[[Any], Any]], tuple[int, int]] | None = None


def storable(table: pa.Table, version: str) -> pa.Table:
    """Without maps where pylance has none; so does lance_core, since like is compared with like."""
    maps = [field.name for field in table.schema if pa.types.is_map(field.type)]
    return table.drop_columns(maps) if version in {"2.0", "2.1"} else table


def _ask_for(asked: dict[str, str], table: pa.Table) -> pa.Table:
    """With something asked for in the metadata of each string column."""
    fields = [field.with_metadata(asked) if pa.types.is_string(field.type) else field for field in table.schema]
    return pa.table(table.columns, schema=pa.schema(fields))


def _write_lance_core(
    version: str,
    table: pa.Table,
    path: str,
    mode: str = "create",
    *,
    compression_profile: CompressionProfile | None = None,
) -> None:
    import lance_core  # noqa: PLC0415 - memory and start of each engine are measured apart

    table = storable(table, version)
    # No argument unless it is asked for: `--compare` may run code that has no profiles.
    profile = {"compression_profile": compression_profile} if compression_profile else {}
    lance_core.write_dataset(table, path, mode=mode, data_storage_version=version, **profile)


def _write_asked(asked: dict[str, str], table: pa.Table, path: str, mode: str = "create") -> None:
    _write_lance_core("2.2", _ask_for(asked, table), path, mode)


def _open_lance_core(path: str) -> Any:
    import lance_core  # noqa: PLC0415 - see above

    return lance_core.dataset(path)


def _count_lance_core(path: str, warm: Callable[[Any], Any], work: Callable[[Any], Any]) -> tuple[int, int]:
    """Requests as a remote store would make them."""
    from lance_core.testing.counting_store import open_counting  # noqa: PLC0415 - see above

    handle, counts = open_counting(path)
    warm(handle)
    counts.clear()
    work(handle)
    return counts.num_requests, counts.num_bytes


def _write_pylance(version: str, table: pa.Table, path: str, mode: str = "create") -> None:
    import lance  # noqa: PLC0415 - see above

    lance.write_dataset(storable(table, version), path, mode=mode, data_storage_version=version)


def _open_pylance(path: str) -> Any:
    import lance  # noqa: PLC0415 - see above

    return lance.dataset(path)


def _count_pylance(path: str, warm: Callable[[Any], Any], work: Callable[[Any], Any]) -> tuple[int, int]:
    handle = _open_pylance(path)
    warm(handle)
    handle.io_stats_incremental()
    work(handle)
    stats = handle.io_stats_incremental()
    return stats.read_iops, stats.read_bytes


def _write_parquet(table: pa.Table, path: str, mode: str = "create") -> None:
    Path(path).mkdir(parents=True, exist_ok=True)
    number = len(list(Path(path).iterdir())) if mode == "append" else 0
    pq.write_table(table, f"{path}/part{number}.parquet", compression="zstd")


def _write_ipc(table: pa.Table, path: str) -> None:
    Path(path).mkdir(parents=True, exist_ok=True)
    with pa.ipc.new_file(f"{path}/part.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=1 << 18)


def _lance_core(version: str) -> Engine:
    write = partial(_write_lance_core, version)
    append = partial(_write_lance_core, version, mode="append")
    return Engine(write=write, append=append, open=_open_lance_core, sql=True, count_io=_count_lance_core)


def _pylance(version: str) -> Engine:
    write, append = partial(_write_pylance, version), partial(_write_pylance, version, mode="append")
    return Engine(write=write, append=append, open=_open_pylance, sql=True, count_io=_count_pylance)


def _asked(codec: str, chunk: int | None = None) -> Engine:
    """lance_core with a codec asked for, and chunks of so many KiB."""
    asked = {"lance-encoding:compression": codec}
    if chunk:
        asked["lance-encoding:minichunk-size"] = str(chunk << 10)
    write = partial(_write_asked, asked)
    return replace(_lance_core("2.2"), write=write, append=partial(write, mode="append"))


def _by_profile(profile: CompressionProfile) -> Engine:
    """lance_core with a compression profile."""
    return replace(_lance_core("2.2"), write=partial(_write_lance_core, "2.2", compression_profile=profile))


def _reads(writer: Callable[[str], Engine], reader: Callable[[str], Engine], version: str) -> Engine:
    """One engine reads what another one wrote."""
    theirs, ours = writer(version), reader(version)
    return Engine(write=theirs.write, append=None, open=ours.open, sql=True, count_io=ours.count_io)


def _write_delta(table: pa.Table, path: str, mode: str = "overwrite") -> None:
    import deltalake  # noqa: PLC0415 - see above

    deltalake.write_deltalake(path, table, mode=mode)


def _open_delta(path: str) -> Any:
    import deltalake  # noqa: PLC0415 - see above

    return deltalake.DeltaTable(path).to_pyarrow_dataset()


ENGINES = {
    **{f"core-{version}": _lance_core(version) for version in ("2.0", "2.1", "2.2")},
    **{f"core-2.2-{profile}": _by_profile(profile) for profile in ("fast", "small")},
    **{f"core-2.2-{codec}-{chunk}": _asked(codec, chunk) for codec in ("zstd", "lz4") for chunk in (4, 8, 16, 32)},
    "core-2.2-fsst": _asked("fsst"),
    "core-2.2-none": _asked("none"),
    **{f"pylance-{version}": _pylance(version) for version in ("2.0", "2.1", "2.2")},
    **{f"core<pylance-{version}": _reads(_pylance, _lance_core, version) for version in ("2.0", "2.1", "2.2")},
    **{f"pylance<core-{version}": _reads(_lance_core, _pylance, version) for version in ("2.1", "2.2")},
    "parquet": Engine(
        write=_write_parquet, append=partial(_write_parquet, mode="append"), open=pads.dataset, sql=False
    ),
    "delta": Engine(write=_write_delta, append=partial(_write_delta, mode="append"), open=_open_delta, sql=False),
    "ipc": Engine(write=_write_ipc, append=None, open=partial(pads.dataset, format="ipc"), sql=False),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions:
    """What is asked of one data set.

    Attributes:
        columns: A projection.
        number: The column to filter by.
        low: Below it are 1 % of the rows.
        middle: Below it are half of them.
        num_rows: Rows of the table.
    """

    columns: list[str]
    number: str
    low: Any
    middle: Any
    num_rows: int

    def filter(self, engine: Engine, bound: Any) -> Any:
        """Rows below a bound, as the engine takes it."""
        return f"{self.number} < {bound!r}" if engine.sql else pads.field(self.number) < bound

    def rows(self, engine: Engine, count: int) -> Any:
        """Random rows, ascending, as the engine takes them."""
        chosen = np.sort(np.random.default_rng(3).choice(self.num_rows, min(count, self.num_rows), replace=False))
        return chosen.tolist() if engine.sql else pa.array(chosen)


def questions(found: DataSet, table: pa.Table) -> Questions:
    """The questions for a table."""
    numbers = table[found.number].drop_null().to_numpy()
    low, middle = (type(numbers[0].item())(numpy_bound) for numpy_bound in np.quantile(numbers, [0.01, 0.5]))
    return Questions(columns=list(found.columns), number=found.number, low=low, middle=middle, num_rows=table.num_rows)


READS: dict[str, Callable[[Engine, Questions], Callable[[Any], Any]]] = {
    "scan": lambda _engine, _asked: lambda handle: handle.to_table(),
    "stream": lambda _engine, _asked: lambda handle: sum(batch.num_rows for batch in handle.to_batches()),
    "2 columns": lambda _engine, asked: lambda handle: handle.to_table(columns=asked.columns),
    "filter 1%": lambda engine, asked: partial(_filter, asked.filter(engine, asked.low)),
    "filter 50%": lambda engine, asked: partial(_filter, asked.filter(engine, asked.middle)),
    "count": lambda engine, asked: partial(_count, asked.filter(engine, asked.low)),
    "count all": lambda _engine, _asked: lambda handle: handle.count_rows(),
    "head": lambda _engine, _asked: lambda handle: handle.head(10),
    "take 1": lambda engine, asked: partial(_take, asked.rows(engine, 1)),
    "take 100": lambda engine, asked: partial(_take, asked.rows(engine, 100)),
    "take 10k": lambda engine, asked: partial(_take, asked.rows(engine, 10_000)),
}
"""Questions to a handle."""


def _filter(condition: Any, handle: Any) -> Any:
    return handle.to_table(filter=condition)


def _count(condition: Any, handle: Any) -> Any:
    return handle.count_rows(filter=condition)


def _take(rows: Any, handle: Any) -> Any:
    return handle.take(rows)
