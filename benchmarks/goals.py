"""What is asked of lance_core beside pylance, Parquet and others, and whether what was measured reaches it.

A figure is a ratio to the anchor (1 = as expensive), which is pylance's best of its file versions unless it is named;
or it has a unit. "must" is asked of every release, "aim" is what the machine allows. CPU ratios decide, since wall
times tell as much of the machine's other work; 15 % of noise are granted, and a figure that needs them says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import figures
import growth_report
from figures import Memory, OfData, Peak, Single

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from figures import Figure

SLACK = 1.15


@dataclass(frozen=True, slots=True)
class Goal:
    """One thing that is asked.

    Attributes:
        row: Number of the goal, several figures may share one; 0 if nothing is asked, but it is worth knowing.
        work: What is measured.
        must: Figure that a release must not exceed.
        aim: Figure to aim at.
        find: Looks the figure up in what was measured, None if it was not; or text: where it is tested exactly.
        unit: Of figures that are no ratios.
    """

    row: int
    work: str
    must: float
    aim: float
    find: Callable[[Mapping[str, Any]], Figure | None] | str
    unit: str = ""


_ANY = float("inf")
_OTHERS = {"fast": "core-2.2-fast", "small": "core-2.2-small"}
_TABLES, _TEXTS = ("taxi", "text", "nested"), ("taxi", "text")
_FIRST = ("scan", "2 columns", "filter 1%", "take 100")

# Files of version 2.0 are plain values, two to five times as many bytes as ours or pylance's other versions: to copy
# them costs less than to unpack anything. So the rows of other shapes come three times: beside all versions, beside
# those of like size, and files of version 2.0 of both.
SHAPE_WORKS = ("write", "scan", "stream", "2 columns", "filter 1%", "take 1", "take 100", "take 10k")

_CHANGES = {
    "small fragments": ("update 1 row", "upsert 10 rows", "build BTREE", "add a column"),
    "indexed small fragments": ("delete 1 row", "upsert 10 rows"),
}
_QUERIES = (
    *("10 rows with a condition", "1,000 rows at an offset", "first 100 by text", "LIKE '%x%'", "take 1,000"),
    *("count a flag", "count a range of times", "count five conditions", "4 % by time", "1,000 texts"),
    *("best 10 of three words", "best 10 of a phrase"),
)
_LOOK_UPS = (
    *(f"{column} {keys}" for column in ("id", "text", "time") for keys in ("= key", "IN 100 keys")),
    *(f"range of 0.1 % of {column}" for column in ("id", "text", "time")),
    "BITMAP = 1 %",
)


def _other_profiles() -> tuple[Goal, ...]:
    """Text once more, by the profiles that are not the default: the two ends of bytes against time."""
    names = {"filter 1%": "filter 1 %", "filter 50%": "filter 50 %", "take 10k": "take 10,000"}
    works = ("filter 1%", "filter 50%", "take 1", "take 100", "take 10k")
    small = Goal(
        14, "bytes of text, profile small", 0.85, 0.65, OfData("text", "bytes", figures.BEST, _OTHERS["small"])
    )
    return small, *[
        Goal(0, f"{names.get(work, work)} of text, profile {profile}", _ANY, _ANY,
             OfData("text", work, "pylance-2.1" if work in ("write", "scan") else figures.BEST, engine))
        for profile, engine in _OTHERS.items() for work in ("write", "scan", *works)
    ]  # fmt: skip


def _like(data: str) -> str:
    """Maps are in pylance's files of version 2.2 only: like is compared with like."""
    return "pylance-2.2" if data == "nested" else figures.BEST


_ALL = (
    Goal(1, "import: CPU", 0.70, 0.60, Single("import")),
    Goal(1, "import: memory", 0.65, 0.55, figures.import_memory),
    Goal(2, "open", 0.5, 0.15, Single("open")),
    Goal(3, "open, 100,000 fragments", 0.10, 0.04, Single("open with many fragments")),
    Goal(4, "open, 10,000 versions", 0.2, 0.05, Single("open with many versions")),
    Goal(4, "the same beside 10 versions", 1.2, 1.2, figures.growth_with_versions),
    Goal(5, "append at 100,000 fragments", 0.06, 0.02, Single("append to many fragments")),
    Goal(6, "append 1,000 rows x 6", 0.7, 0.3, Single("append 1k")),
    Goal(7, "versions(), 10,000 of them", 0.3, 0.02, Single("versions")),
    Goal(8, "clean-up of 10,000 versions", 0.5, 0.2, Single("clean-up")),
    Goal(9, "write embeddings", 0.6, 0.4, OfData("embeddings", "write")),
    Goal(9, "write taxi, 2.0", 0.6, 0.4, OfData("taxi", "write", "pylance-2.0", "core-2.0")),
    Goal(10, "write blobs, 2.0", 1.0, 0.95, OfData("blobs", "write", "pylance-2.0", "core-2.0")),
    Goal(10, "write blobs, 2.2", 0.35, 0.22, OfData("blobs", "write", "pylance-2.2")),
    Goal(11, "write taxi, beside 2.1", 1.0, 0.5, OfData("taxi", "write", "pylance-2.1")),
    Goal(12, "write text, beside 2.1", 0.9, 0.5, OfData("text", "write", "pylance-2.1")),
    Goal(13, "bytes of taxi, beside 2.1", 0.5, 0.3, OfData("taxi", "bytes", "pylance-2.1")),
    Goal(14, "bytes of text", 1.0, 0.9, OfData("text", "bytes")),
    Goal(14, "bytes of nested", 0.8, 0.55, OfData("nested", "bytes", "pylance-2.2")),
    Goal(14, "bytes of nested, 2.1", 0.8, 0.55, OfData("nested", "bytes", "pylance-2.1", "core-2.1")),
    Goal(15, "scan embeddings", 0.3, 0.1, OfData("embeddings", "scan")),
    Goal(15, "scan taxi, 2.0", 0.3, 0.1, OfData("taxi", "scan", "pylance-2.0", "core-2.0")),
    Goal(16, "scan pylance's taxi, 2.1", 1.0, 0.6, OfData("taxi", "scan", "pylance-2.1", "core<pylance-2.1")),
    Goal(16, "scan pylance's text, 2.1", 1.0, 0.7, OfData("text", "scan", "pylance-2.1", "core<pylance-2.1")),
    Goal(16, "scan pylance's nested, 2.1", 1.0, 0.7, OfData("nested", "scan", "pylance-2.1", "core<pylance-2.1")),
    Goal(17, "scan text, beside 2.1", 0.8, 0.5, OfData("text", "scan", "pylance-2.1")),
    Goal(18, "2 columns of taxi", 0.6, 0.2, OfData("taxi", "2 columns")),
    *[Goal(19, f"filter 1 % of {one}", 0.6, 0.2, OfData(one, "filter 1%")) for one in (*_TEXTS, "embeddings")],
    *[Goal(20, f"filter 50 % of {one}", 1.0, 0.5, OfData(one, "filter 50%")) for one in _TEXTS],
    *[Goal(21, f"take 1 of {one}", 0.8, 0.3, OfData(one, "take 1", _like(one))) for one in (*_TABLES, "embeddings")],
    *[Goal(22, f"take 100 of {one}", 0.5, 0.15, OfData(one, "take 100", _like(one))) for one in _TABLES],
    *[Goal(23, f"take 10,000 of {one}", 0.4, 0.1, OfData(one, "take 10k", _like(one)))
      for one in (*_TABLES, "embeddings")],
    *[Goal(24, f"open, take 100 of {one}", 0.7, 0.25, OfData(one, "take 100*")) for one in _TEXTS],
    *[Goal(24, f"the same, cold (by wall), {one}", 0.6, 0.15, OfData(one, "take 100 cold", by_wall=True))
      for one in _TEXTS],
    Goal(25, "500 columns: open, take 1", 1.0, 0.5, OfData("wide", "take 1*")),
    Goal(25, "500 columns: scan", 1.0, 0.4, OfData("wide", "scan")),
    Goal(25, "500 columns: append 1,000", 1.0, 0.6, OfData("wide", "append 1k")),
    Goal(26, "open, count of taxi", 0.5, 0.2, OfData("taxi", "count all*")),
    Goal(26, "filtered count of taxi", 0.5, 0.15, OfData("taxi", "count")),
    *[Goal(26, f"{work} of 500 small fragments", 1.0, 0.7, Single(f"{work} of small fragments"))
      for work in ("scan", "1 column", "filter 10%", "filter 0%", "count")],
    *[Goal(26, f"{work} of 50 files of 10,000 rows", 1.0, 0.7, Single(f"{work} of 50 files of taxi"))
      for work in (*_FIRST, "stream")],
    *[Goal(26, f"{work} of {number} fragments of one row", 1.0, 0.5, Single(f"{work} of {number} fragments of one row"))
      for number in ("2,000", "20,000") for work in ("filter", "scan", "stream", "take")],
    *[Goal(27, f"delete 1 % of {one}", 0.8, 0.3, Single(f"delete 1% of {one}")) for one in _TEXTS],
    *[Goal(28, f"compact 100 fragments of {one}", 0.8, 0.25, Single(f"compact {one}")) for one in _TEXTS],
    Goal(29, "memory of a streamed scan", 64, 32, Memory("peak stream"), "MiB"),
    Goal(29, "memory of a write", 64, 32, Memory("peak write"), "MiB"),
    Goal(30, "requests beside pylance, worst", 1.0, 1.0, figures.requests),
    *[Goal(31, f"take 100 of {one} beside Parquet", 0.05, 0.01, OfData(one, "take 100", "parquet")) for one in _TEXTS],
    Goal(32, "Spark: 1 commit, tasks read 0 manifests", 0, 0, "tests/spark/test_store_calls.py"),
    Goal(33, "create a tag", 1.0, 0.5, Single("create a tag")),
    Goal(33, "open by tag", 0.5, 0.3, Single("resolve a tag")),
    Goal(33, "list 10,000 tags", 0.8, 0.02, Single("list tags")),
    Goal(34, "same input, other bytes", 0, 0, figures.same_bytes, "kinds"),
    Goal(35, "Spark: write vectors, beside Parquet", 0.75, 0.70, Single("Spark write", "parquet")),
    Goal(35, "the same, told that rows are small", 0.75, 0.70, Single("Spark write", "parquet", "lance, small rows")),
    Goal(36, "Spark: read all of it, beside Parquet", 1.7, 1.2, Single("Spark read, full", "parquet")),
    Goal(37, "Spark: read 2 of its columns, beside Parquet", 2.4, 1.8, Single("Spark read, two", "parquet")),
    *[Goal(38, f"{opened}{work}", 1.0, 0.7, Single(f"{opened}{work}"))
      for opened in ("look up: ", "open, look up: ") for work in _LOOK_UPS],
    *[Goal(39, f"build {what}", 1.0, 0.7, Single(f"build {what}"))
      for what in ("BTREE of id", "BTREE of text", "BTREE of time", "BITMAP of few", "BITMAP of thousand")],
    Goal(39, "memory of a build", 1024, 800, Peak("build"), "MiB"),
    *[Goal(40, f"upsert 1,000 rows by {column}", 1.0, 0.5, Single(f"upsert 1,000 rows by {column}"))
      for column in ("id", "text", "time")],
    Goal(40, "memory of an upsert", 286, 250, Peak("upsert"), "MiB"),
    Goal(40, "share of the key column that an upsert reads", 0.02, 0, "tests/core/change/test_key_lookup.py"),
    Goal(41, "compact 100 fragments with an index", 1.0, 0.3, Single("compact 100 fragments with an index")),
    Goal(41, "the same beside no index", 1.3, 1.1, Single("compact 100 fragments with an index", "without")),
    Goal(41, "the same, remap deferred, beside no index", 1.1, 1.0,
         Single("compact 100 fragments with an index", "without", "deferred")),
    Goal(42, "audit of indices by sampling, beside a scan", 0.05, 0.02, Single("audit of indices by sampling", "scan")),
    *[Goal(43, f"process: {work} of {one}", 1.0, 0.8, Single(f"process: {work} of {one}"))
      for one in _TEXTS for work in _FIRST],
    *[Goal(43, f"process: {work} of 50 files of 10,000 rows", 1.0, 0.8, Single(f"process: {work} of 50 files of taxi"))
      for work in (*_FIRST, "stream")],
    *[Goal(44, f"{number} scans of {one} at once", 1.1, 0.9, Single(f"{number} scans of {one} at once", by_wall=True))
      for one in _TEXTS for number in (2, 4)],
    *[Goal(45, f"streamed scan of {one}", 1.0, 0.7, OfData(one, "stream", _like(one)))
      for one in (*_TABLES, "embeddings", "wide")],
    *[Goal(45, f"streamed scan of {one}, 2.0 beside 2.0", 1.0, 0.7, OfData(one, "stream", "pylance-2.0", "core-2.0"))
      for one in (*_TEXTS, "embeddings", "wide")],
    *[Goal(46, f"{work} of other shapes, worst", 1.0, 0.7, figures.OfShapes(work)) for work in SHAPE_WORKS],
    *[Goal(46, f"the same, {how}: {work}", 1.0, 0.7, figures.OfShapes(work, theirs))
      for how, theirs in (("beside files of like size", figures.LIKE_SIZE), ("2.0 beside 2.0", figures.PLAIN))
      for work in SHAPE_WORKS],
    Goal(47, "time per row at ten times the size, worst", 1.2, 1.1, growth_report.time_growth),
    Goal(48, "memory of writes and streams at ten times the size", 128, 64, growth_report.memory_of_streams, "MiB"),
    Goal(48, "memory of compactions at ten times the size", 2048, 1024, growth_report.memory_of_compactions, "MiB"),
    *[Goal(49, f"{work} of 500 {what}", 1.0, 0.5, Single(f"{work} of {what}"))
      for what, works in _CHANGES.items() for work in works],
    *[Goal(50, f"query: {work}", 1.0, 0.7, Single(f"query: {work}")) for work in _QUERIES],
    *[Goal(0, f"first {work} of {one} in a process", _ANY, _ANY, Single(f"first {work} of {one}"))
      for one in _TEXTS for work in _FIRST],
    *[Goal(0, f"first {work} of 50 files of 10,000 rows in a process", _ANY, _ANY,
           Single(f"first {work} of 50 files of taxi"))
      for work in (*_FIRST, "stream")],
    *_other_profiles(),
    Goal(0, "compact taxi with deletions", _ANY, _ANY, Single("compact taxi with deletions")),
    Goal(0, "a Dagster asset beside pylance by hand", _ANY, _ANY, Single("materialize an asset")),
    Goal(0, "a Dagster asset beside Parquet by hand", _ANY, _ANY, Single("materialize an asset", "parquet")),
)  # fmt: skip

GOALS = tuple(sorted(_ALL, key=lambda goal: goal.row or _ANY))
"""By row; what nothing is asked of at the end."""


REASONS = {
    1: "import", 2: "open", 6: "append", 7: "versions", 8: "versions", 10: "blobs", 14: "text-bytes",
    16: "pylance-text", 18: "taxi-reads", 21: "takes", 22: "takes", 24: "opened-again", 25: "opened-again", 26: "files",
    27: "delete", 28: "compaction", 29: "memory", 30: "requests", 33: "versions", 35: "spark-write", 36: "spark-reads",
    37: "spark-reads", 39: "builds", 40: "upsert", 41: "compaction", 42: "audit", 43: "first-scan", 44: "threads",
    45: "shapes", 46: "shapes", 47: "growth", 49: "changes", 50: "queries",
}  # fmt: skip
"""Of rows, where explained.md tells what keeps them from their target."""


def judge(goal: Goal, figure: Figure | None) -> str:
    """What became of a goal, in a word or two."""
    if isinstance(goal.find, str):
        return "exact test"
    if figure is None:
        return "not measured"
    if not goal.row:
        return "-"
    if figure.value <= goal.aim:
        return "aim"
    if figure.value <= goal.must:
        return "must"
    return "in the slack" if not goal.unit and figure.value <= goal.must * SLACK else "MISSED"


def why_not(goal: Goal, results: Mapping[str, Any]) -> str:
    """Why nothing was measured for a goal."""
    return results.get("left_out", {}).get(getattr(goal.find, "work", ""), "not part of this run")


def table(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """All goals with what was reached."""
    rows: list[dict[str, Any]] = []
    for goal in GOALS:
        figure = None if isinstance(goal.find, str) else goal.find(results)
        told = goal.find if isinstance(goal.find, str) else why_not(goal, results)
        rows.append(
            {
                "row": goal.row,
                "work": goal.work,
                "must": goal.must if goal.row else None,
                "aim": goal.aim if goal.row else None,
                "unit": goal.unit,
                "found": None if figure is None else round(figure.value, 4),
                "wall": None if figure is None or figure.wall is None else round(figure.wall, 4),
                "anchor": told if figure is None else figure.anchor,
                "verdict": judge(goal, figure),
            }
        )
    return rows
