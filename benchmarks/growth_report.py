"""What growth.py has measured as a table and as a picture: CPU time per row and memory over the size."""

from __future__ import annotations

from math import log10
from typing import TYPE_CHECKING, Any

from figures import Figure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

SIZES = (1, 3, 10)
"""How often the rows come in each of the tables."""
OURS = "lance_core"
BOUNDED = ("write", "stream")
"""Works whose memory must not depend on the size."""
WORKS = ("write", "scan", "stream", "filter 1%", "take 1,000", "compact")
_CPU, _MEMORY = 0, 2

Spent = tuple[float, float, float]


def _of_ours(
    results: Mapping[str, Any], part: str = "growth"
) -> Iterator[tuple[str, str, Mapping[str, Sequence[Spent]]]]:
    for kind, measured in results.get(part, {}).get("kinds", {}).items():
        for work in WORKS:
            if work in measured["works"]:
                yield kind, work, measured["works"][work]


def time_growth(results: Mapping[str, Any]) -> Figure | None:
    """The worst ratio of CPU time per row at ten times the size to that at the smallest one."""
    found = [
        Figure(spent[OURS][-1][_CPU] / spent[OURS][0][_CPU], anchor=f"{kind}, {work}: the smallest size")
        for kind, work, spent in _of_ours(results)
    ]
    return max(found, key=lambda figure: figure.value, default=None)


def memory_of_streams(results: Mapping[str, Any]) -> Figure | None:
    """The most MiB that a write or a streamed scan adds to a process at ten times the size."""
    return _memory(results, BOUNDED)


def memory_of_compactions(results: Mapping[str, Any]) -> Figure | None:
    """Likewise of compactions, which may take the default of ``max_memory_bytes``."""
    return _memory(results, ("compact",))


def _memory(results: Mapping[str, Any], works: Sequence[str]) -> Figure | None:
    found = [
        Figure(spent[OURS][-1][_MEMORY], anchor=f"{kind}, {work}; pylance {spent['pylance'][-1][_MEMORY]:.0f} MiB")
        for kind, work, spent in _of_ours(results)
        if work in works
    ]
    return max(found, key=lambda figure: figure.value, default=None)


def growth_text(results: Mapping[str, Any], part: str = "growth") -> str:
    """A table: time per row at ten times the size, beside the smallest size and beside the others, and memory.

    Args:
        results: What was measured.
        part: Where in it; only "growth" has a picture.
    """
    growth = results.get(part)
    if growth is None:
        return "Not measured yet."
    lines = [f"Load {growth['load']:.1f} at the start; {growth['seconds'] / 60:.0f} minutes.", ""]
    if part == "growth":
        lines += ["![CPU time per row and memory over the size](published/growth.svg)", ""]
    lines += [
        "| | rows | work | ns per row | growth | of pylance | of Parquet | beside pylance | MiB | pylance |",
        "|---|---:|---|" + "---:|" * 7,
    ]
    for kind, work, spent in _of_ours(results, part):
        rows = growth["kinds"][kind]["rows"] * SIZES[-1]
        ours, pylance, parquet = (spent.get(name) for name in (OURS, "pylance", "Parquet"))
        assert ours is not None  # noqa: S101 - for the type checker
        cells = [f"{ours[-1][_CPU]:,.0f}", *(_growth(one) for one in (ours, pylance, parquet))]
        cells += ["" if pylance is None else f"{ours[-1][_CPU] / pylance[-1][_CPU]:.2f}"]
        cells += ["" if one is None else f"{one[-1][_MEMORY]:,.0f}" for one in (ours, pylance)]
        lines.append(f"| {kind} | {rows:,} | {work} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _growth(spent: Sequence[Spent] | None) -> str:
    return "" if spent is None else f"{spent[-1][_CPU] / spent[0][_CPU]:.2f}"


# ------------------------------------------------------------------------------------------------ picture

_COLOURS = (("Parquet", "parquet"), ("pylance", "theirs"), (OURS, "ours"))
"""Engines and their kinds of lines; the last is on top."""
_LEFT, _TOP, _WIDTH, _HEIGHT, _GAP, _HEAD = 8, 34, 118, 62, 12, 34
_STYLE = """<style>
text { font: 12px sans-serif; fill: #24292f } .dim { fill: #57606a; font-size: 10px } .group { font-weight: bold }
.ours, .theirs, .parquet { fill: none; stroke-width: 2 }
.ours { stroke: #1f6feb } .theirs { stroke: #57606a } .parquet { stroke: #9a6700; stroke-dasharray: 4 3 }
.axis { stroke: #d0d7de }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .dim { fill: #9198a1 } .ours { stroke: #58a6ff } .theirs { stroke: #9198a1 }
.parquet { stroke: #d29922 } .axis { stroke: #3d444d }
}
</style>"""


def curves(results: Mapping[str, Any]) -> str:
    """Small charts over the size, on a logarithmic scale: time per row by work, then memory of what bounds it."""
    parts: list[str] = []
    top = _TOP
    blocks: tuple[tuple[str, tuple[str, ...], int, Callable[[float], str]], ...] = (
        ("CPU time per row", WORKS, _CPU, _time),
        ("memory", (*BOUNDED, "compact"), _MEMORY, _size),
    )
    for title, works, column, shown in blocks:
        for kind, measured in results["growth"]["kinds"].items():
            sizes = f"{measured['rows'] * SIZES[0]:,} to {measured['rows'] * SIZES[-1]:,} rows"
            parts.append(f'<text class="group" x="{_LEFT}" y="{top + 12}">{kind}: {title}</text>')
            parts.append(f'<text class="dim" x="792" y="{top + 12}" text-anchor="end">{sizes}</text>')
            for place, work in enumerate(work for work in works if work in measured["works"]):
                left = _LEFT + place * (_WIDTH + _GAP)
                spent = measured["works"][work]
                parts += _chart(spent, column, work, shown(spent[OURS][-1][column]), (left, top + _HEAD))
            top += _HEAD + _HEIGHT + _GAP
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 800 {top}" width="800" height="{top}">',
        _STYLE,
        f'<text class="dim" x="792" y="19" text-anchor="end">from left to right: {_sizes()} times the rows</text>',
    ]
    for place, (name, kind) in enumerate(reversed(_COLOURS)):
        x = _LEFT + place * 110
        head.append(f'<line class="{kind}" x1="{x}" y1="15" x2="{x + 18}" y2="15"/>')
        head.append(f'<text x="{x + 24}" y="19">{name}</text>')
    return "\n".join([*head, *parts, "</svg>\n"])


def _sizes() -> str:
    return ", ".join(map(str, SIZES))


def _chart(
    spent: Mapping[str, Sequence[Spent]], column: int, name: str, last: str, at: tuple[float, float]
) -> list[str]:
    """A line for each engine, from nothing to the most of lance_core's and pylance's figures; others may be cut off."""
    left, top = at
    judged = [one[column] for name in (OURS, "pylance") for one in spent.get(name, ())]
    most = max([*judged, 1e-9]) * 1.15
    bottom = top + _HEIGHT - 12
    parts = [
        f'<line class="axis" x1="{left}" y1="{bottom}" x2="{left + _WIDTH}" y2="{bottom}"/>',
        f'<text class="dim" x="{left}" y="{top - 6}">{name}</text>',
        f'<text class="dim" x="{left + _WIDTH}" y="{bottom + 11}" text-anchor="end">{last}</text>',
    ]
    for engine, kind in _COLOURS:
        if engine not in spent:
            continue
        places = [
            (left + _WIDTH * log10(size) / log10(SIZES[-1]), bottom - (bottom - top) * min(one[column] / most, 1))
            for size, one in zip(SIZES, spent[engine], strict=True)
        ]
        parts.append(f'<polyline class="{kind}" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in places)}"/>')
    return parts


def _time(nanoseconds: float) -> str:
    return f"{nanoseconds / 1e3:,.1f} µs" if nanoseconds >= 1e4 else f"{nanoseconds:,.0f} ns"


def _size(mebibytes: float) -> str:
    return f"{mebibytes:,.0f} MiB"
