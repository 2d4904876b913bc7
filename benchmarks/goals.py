"""What is asked of lance_core beside pylance, Parquet and others, and whether what was measured reaches it.

A figure is a ratio to the anchor (1 = as expensive), unless its unit says otherwise. "must" is asked of every release,
"aim" is what the machine allows. CPU ratios decide, since wall times tell as much of the machine's other work; 15 % of
noise are granted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SLACK = 1.15
OURS, BEST = "core-2.2", "best pylance"
PYLANCES = ("pylance-2.0", "pylance-2.1", "pylance-2.2")


@dataclass(frozen=True, slots=True)
class Figure:
    """What was measured.

    Attributes:
        cpu: Ratio of CPU time, or a figure in the goal's unit.
        wall: Ratio of wall time; None if there is none.
        anchor: What stands for 1, in words.
    """

    cpu: float
    wall: float | None = None
    anchor: str = ""


@dataclass(frozen=True, slots=True)
class Goal:
    """One thing that is asked.

    Attributes:
        row: Number of the goal; several figures may share one.
        work: What is measured.
        must: Figure that a release must not exceed.
        aim: Figure to aim at.
        find: Looks the figure up in what was measured; None if it was not.
        unit: Of figures that are no ratios.
    """

    row: int
    work: str
    must: float
    aim: float
    find: Callable[[Mapping[str, Any]], Figure | None]
    unit: str = ""


def _data(data: str, work: str, theirs: str = BEST, ours: str = OURS, *, by_wall: bool = False) -> Any:
    """One engine beside another on a data set."""

    def find(results: Mapping[str, Any]) -> Figure | None:
        spent = results["data"].get(data, {}).get(work, {})
        names = [name for name in (PYLANCES if theirs == BEST else (theirs,)) if name in spent]
        if ours not in spent or not names:
            return None
        if not isinstance(spent[ours], (list, tuple)):
            return Figure(spent[ours] / spent[names[0]], anchor=f"{names[0]} {spent[names[0]] / 1e6:,.1f} MB")
        place = 1 if by_wall else 0
        base = min(names, key=lambda name: spent[name][place])
        ratios = [mine / other for mine, other in zip(spent[ours], spent[base], strict=True)]
        return Figure(ratios[place], ratios[1], f"{base} {spent[base][place] * 1e3:,.2f} ms")

    return find


def _single(work: str, place: int = 0, theirs: str = "pylance", ours: str = "lance_core") -> Any:
    """lance_core beside pylance in a measurement of its own."""

    def find(results: Mapping[str, Any]) -> Figure | None:
        spent = results["singles"].get(work)
        if spent is None:
            return None
        mine, other = spent[ours], spent[theirs]
        told = f"{theirs} {other[place]:,.0f} MiB" if work == "import" and place else f"{other[place] * 1e3:,.2f} ms"
        return Figure(mine[place] / other[place], None if work == "import" else mine[1] / other[1], told)

    return find


def _own(work: str, base: str) -> Any:
    """lance_core beside itself."""

    def find(results: Mapping[str, Any]) -> Figure | None:
        spent = results["singles"]
        if work not in spent:
            return None
        mine, other = spent[work]["lance_core"], spent[base]["lance_core"]
        return Figure(mine[0] / other[0], mine[1] / other[1], f"{base} {other[0] * 1e3:.2f} ms")

    return find


def _requests(results: Mapping[str, Any]) -> Figure | None:
    """The worst ratio of requests to pylance's over all data sets, cold and warm."""
    worst: tuple[float, str] | None = None
    for data, kept in results["data"].items():
        for key, counts in kept.items():
            work = key.removeprefix("requests ").removesuffix(f" {OURS}")
            theirs = kept.get(f"requests {work} pylance-2.2")
            if not key.startswith("requests ") or not key.endswith(f" {OURS}") or theirs is None:
                continue
            for place, kind in ((0, "cold"), (2, "warm")):
                ratio = counts[place] / max(theirs[place], 1)
                worst = max(worst or (0.0, ""), (ratio, f"{data} {work} {kind}: {counts[place]} to {theirs[place]}"))
    return None if worst is None else Figure(worst[0], anchor=worst[1])


def _memory(work: str) -> Any:
    def find(results: Mapping[str, Any]) -> Figure | None:
        peaks = {data: kept[work][OURS][1] for data, kept in results["data"].items() if OURS in kept.get(work, {})}
        if not peaks:
            return None
        most = max(peaks, key=lambda data: peaks[data])
        theirs = results["data"][most][work].get("pylance-2.2", (0, float("nan")))
        return Figure(peaks[most], anchor=f"{most}; pylance-2.2 {theirs[1]:.0f} MiB; without mapped pages of files")

    return find


def _same(results: Mapping[str, Any]) -> Figure | None:
    found = results.get("same_bytes")
    if not found:
        return None
    others = [name for name, is_same in found.items() if not is_same]
    return Figure(len(others), anchor=", ".join(others) or f"{len(found)} kinds of files")


GOALS = (
    Goal(1, "import: CPU", 0.70, 0.60, _single("import")),
    Goal(1, "import: memory", 0.65, 0.55, _single("import", 1)),
    Goal(2, "open", 0.5, 0.15, _single("open")),
    Goal(3, "open, 100,000 fragments", 0.10, 0.04, _single("open with many fragments")),
    Goal(4, "open, 10,000 versions", 0.2, 0.05, _single("open with many versions")),
    Goal(4, "the same beside 10 versions", 1.2, 1.2, _own("open with many versions", "open with 10 versions")),
    Goal(5, "append at 100,000 fragments", 0.06, 0.02, _single("append to many fragments")),
    Goal(6, "append 1,000 rows x 6", 0.7, 0.3, _single("append 1k")),
    Goal(7, "versions(), 10,000 of them", 0.3, 0.02, _single("versions")),
    Goal(8, "clean-up of 10,000 versions", 0.5, 0.2, _single("clean-up")),
    Goal(9, "write embeddings", 0.6, 0.4, _data("embeddings", "write")),
    Goal(9, "write taxi, 2.0", 0.6, 0.4, _data("taxi", "write", "pylance-2.0", "core-2.0")),
    Goal(10, "write blobs, 2.0", 1.1, 0.95, _data("blobs", "write", "pylance-2.0", "core-2.0")),
    Goal(10, "write blobs, 2.2", 0.35, 0.22, _data("blobs", "write", "pylance-2.2")),
    Goal(11, "write taxi", 1.3, 0.85, _data("taxi", "write", "pylance-2.1")),
    Goal(12, "write text", 0.9, 0.5, _data("text", "write", "pylance-2.1")),
    Goal(13, "bytes of taxi", 0.5, 0.3, _data("taxi", "bytes", "pylance-2.1")),
    Goal(14, "bytes of text", 0.85, 0.65, _data("text", "bytes", "pylance-2.1")),
    Goal(14, "bytes of nested", 0.8, 0.55, _data("nested", "bytes", "pylance-2.1")),
    Goal(15, "scan embeddings", 0.3, 0.1, _data("embeddings", "scan")),
    Goal(15, "scan taxi, 2.0", 0.3, 0.1, _data("taxi", "scan", "pylance-2.0", "core-2.0")),
    Goal(16, "scan pylance's taxi, 2.1", 1.0, 0.6, _data("taxi", "scan", "pylance-2.1", "core<pylance-2.1")),
    Goal(16, "scan pylance's text, 2.1", 2.0, 1.3, _data("text", "scan", "pylance-2.1", "core<pylance-2.1")),
    Goal(16, "scan pylance's nested, 2.1", 2.0, 1.2, _data("nested", "scan", "pylance-2.1", "core<pylance-2.1")),
    Goal(17, "scan text", 0.8, 0.5, _data("text", "scan", "pylance-2.1")),
    Goal(18, "2 columns of taxi", 0.6, 0.2, _data("taxi", "2 columns")),
    *[Goal(19, f"filter 1 % of {one}", 0.6, 0.2, _data(one, "filter 1%")) for one in ("taxi", "text", "embeddings")],
    *[Goal(20, f"filter 50 % of {one}", 1.0, 0.5, _data(one, "filter 50%")) for one in ("taxi", "text")],
    *[Goal(21, f"take 1 of {one}", 0.8, 0.3, _data(one, "take 1")) for one in ("taxi", "text", "nested", "embeddings")],
    *[Goal(22, f"take 100 of {one}", 0.5, 0.15, _data(one, "take 100")) for one in ("taxi", "text", "nested")],
    *[Goal(23, f"take 10,000 of {one}", 0.4, 0.1, _data(one, "take 10k")) for one in ("taxi", "text", "nested")],
    *[Goal(24, f"open, take 100 of {one}", 0.7, 0.25, _data(one, "take 100*")) for one in ("taxi", "text")],
    *[Goal(24, f"the same, cold (wall), {one}", 0.6, 0.15, _data(one, "take 100 cold", by_wall=True))
      for one in ("taxi", "text")],
    Goal(25, "500 columns: open, take 1", 1.2, 0.5, _data("wide", "take 1*")),
    Goal(25, "500 columns: scan", 1.2, 0.4, _data("wide", "scan")),
    Goal(25, "500 columns: append 1,000", 1.2, 0.6, _data("wide", "append 1k")),
    Goal(26, "count of taxi", 0.5, 0.2, _data("taxi", "count all")),
    Goal(26, "filtered count of taxi", 0.5, 0.15, _data("taxi", "count")),
    Goal(27, "delete 1 % of taxi", 0.8, 0.3, _single("delete 1% of taxi")),
    Goal(27, "delete 1 % of text", 0.8, 0.3, _single("delete 1% of text")),
    Goal(28, "compact 100 fragments of taxi", 0.8, 0.25, _single("compact taxi")),
    Goal(28, "the same, pages copied", 0.8, 0.25, _single("compact taxi", ours="copying")),
    Goal(28, "the same, with deletions", 1.5, 0.8, _single("compact taxi with deletions")),
    Goal(28, "compact 100 fragments of text", 0.8, 0.25, _single("compact text")),
    Goal(29, "memory of a streamed scan", 64, 32, _memory("peak stream"), "MiB"),
    Goal(29, "memory of a write", 64, 32, _memory("peak write"), "MiB"),
    Goal(30, "requests, worst", 1.0, 1.0, _requests),
    Goal(31, "take 100 of taxi beside Parquet", 0.05, 0.01, _data("taxi", "take 100", "parquet")),
    Goal(31, "take 100 of text beside Parquet", 0.05, 0.01, _data("text", "take 100", "parquet")),
    Goal(33, "create a tag", 1.0, 0.5, _single("create a tag")),
    Goal(33, "open by tag", 0.5, 0.3, _single("resolve a tag")),
    Goal(33, "list 10,000 tags", 0.8, 0.02, _single("list tags")),
    Goal(34, "same input, other bytes", 0, 0, _same, "kinds"),
)  # fmt: skip


def judge(goal: Goal, figure: Figure | None) -> str:
    """What became of a goal, in one word."""
    if figure is None:
        return "not measured"
    if figure.cpu <= goal.aim:
        return "aim"
    if figure.cpu <= goal.must:
        return "reached"
    return "noise" if figure.cpu <= goal.must * SLACK else "MISSED"


def table(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """All goals with what was reached."""
    rows: list[dict[str, Any]] = []
    for goal in GOALS:
        figure = goal.find(results)
        rows.append(
            {
                "row": goal.row,
                "work": goal.work,
                "must": goal.must,
                "aim": goal.aim,
                "unit": goal.unit,
                "found": None if figure is None else round(figure.cpu, 4),
                "wall": None if figure is None or figure.wall is None else round(figure.wall, 4),
                "anchor": "" if figure is None else figure.anchor,
                "verdict": judge(goal, figure),
            }
        )
    return rows


def print_table(rows: list[dict[str, Any]]) -> None:
    """Asked and reached."""
    print(f"\n{'':>3} {'work':34}{'must':>7}{'aim':>7}{'CPU':>8}{'wall':>8}  {'':13} 1 is")
    for one in rows:
        found = "-" if one["found"] is None else f"{one['found']:.3g}"
        wall = "-" if one["wall"] is None else f"{one['wall']:.3g}"
        told = f"{one['verdict']:13} {one['anchor']}"
        print(f"{one['row']:>3} {one['work']:34}{one['must']:>7g}{one['aim']:>7g}{found:>8}{wall:>8}  {told}")
    counts = {verdict: sum(one["verdict"] == verdict for one in rows) for verdict in {one["verdict"] for one in rows}}
    print(", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items())))
