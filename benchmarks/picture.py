"""What was measured as a picture: CPU time and bytes beside pylance, as SVG for light and dark pages."""

from __future__ import annotations

from math import log10
from typing import TYPE_CHECKING, Any

from figures import OfData, Single

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from figures import Figure

_ONE = "pylance-2.2"
"""What both libraries write by default."""
_FOUR = ("taxi", "text", "nested", "embeddings")


def _row(data: str, work: str) -> tuple[str, OfData, OfData]:
    return data, OfData(data, work, _ONE), OfData(data, work, _ONE, "parquet")


ROWS: dict[str, list[tuple[str, Callable[[Mapping[str, Any]], Figure | None], OfData | None]]] = {
    "At scale": [
        ("import", Single("import"), None),
        ("open, 100,000 fragments", Single("open with many fragments"), None),
        ("append to them", Single("append to many fragments"), None),
        ("list 10,000 versions", Single("versions"), None),
        ("clean them up", Single("clean-up"), None),
    ],
    "Scan": [_row(data, "scan") for data in _FOUR],
    "Filter 1 %": [_row(data, "filter 1%") for data in ("taxi", "text", "embeddings")],
    "Take 100 rows": [_row(data, "take 100") for data in _FOUR],
    "Write": [_row(data, "write") for data in _FOUR],
    "Bytes": [_row(data, "bytes") for data in _FOUR[:3]],
}
"""For each group of bars: names, lance_core beside pylance, Parquet beside pylance."""

_LEFT, _RIGHT, _TOP, _LINE, _GAP = 250, 740, 58, 17, 12
_LEAST, _MOST = 0.01, 100.0
_STYLE = """<style>
text { font: 12px sans-serif; fill: #24292f } .dim { fill: #57606a; font-size: 11px } .group { font-weight: bold }
.ours { fill: #1f6feb } .parquet { fill: #9a6700; stroke: #fff } .line { stroke: #d0d7de } .one { stroke: #57606a }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .dim { fill: #9198a1 } .ours { fill: #58a6ff } .parquet { fill: #d29922; stroke: #0d1117 }
.line { stroke: #3d444d } .one { stroke: #9198a1 }
}
</style>"""


def bars(results: Mapping[str, Any]) -> str:
    """Ratios on a logarithmic scale, pylance = 1 in the middle: to the left is cheaper."""
    parts: list[str] = []
    at = _TOP
    for title, rows in ROWS.items():
        found = [(name, find(results), parquet and parquet(results)) for name, find, parquet in rows]
        found = [(name, figure, other) for name, figure, other in found if figure]
        if not found:
            continue
        parts.append(f'<text class="group" x="8" y="{at + 12}">{title}</text>')
        for name, figure, other in found:
            parts += _bar(name, figure.value, other.value if other else None, at)
            at += _LINE
        at += _GAP
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 800 {at + 4}" width="800" height="{at + 4}">',
        _STYLE,
        f'<rect class="ours" x="{_LEFT}" y="10" width="14" height="10"/>',
        f'<text x="{_LEFT + 20}" y="19">lance_core</text>',
        f'<circle class="parquet" cx="{_LEFT + 117}" cy="15" r="4"/>',
        f'<text x="{_LEFT + 127}" y="19">Parquet (zstd) by pyarrow</text>',
        f'<text class="dim" x="{_LEFT + 290}" y="19">CPU time or bytes; pylance = 1, both with files 2.2</text>',
    ]
    for mark in (0.01, 0.1, 1, 10, 100):
        kind, x = "one" if mark == 1 else "line", _x(mark)
        head.append(f'<line class="{kind}" x1="{x:.1f}" y1="{_TOP - 6}" x2="{x:.1f}" y2="{at - 4}"/>')
        head.append(f'<text class="dim" x="{x:.1f}" y="{_TOP - 11}" text-anchor="middle">{mark:g}</text>')
    return "\n".join([*head, *parts, "</svg>\n"])


def _x(ratio: float) -> float:
    bounded = min(max(ratio, _LEAST), _MOST)
    return _LEFT + (_RIGHT - _LEFT) * log10(bounded / _LEAST) / log10(_MOST / _LEAST)


def _bar(name: str, ratio: float, parquet: float | None, at: float) -> list[str]:
    one, end = _x(1), _x(ratio)
    left, width = min(one, end), max(abs(end - one), 1)
    place, anchor = (left - 5, "end") if ratio <= 1 else (left + width + 5, "start")
    parts = [f'<text x="{_LEFT - 12}" y="{at + 12}" text-anchor="end">{name}</text>'] if name else []
    parts.append(f'<rect class="ours" x="{left:.1f}" y="{at + 2}" width="{width:.1f}" height="{_LINE - 5}" rx="1"/>')
    if parquet is not None:
        parts.append(f'<circle class="parquet" cx="{_x(parquet):.1f}" cy="{at + 8}" r="4"/>')
        if parquet > _MOST:
            parts.append(f'<text class="dim" x="{_x(parquet) + 7:.1f}" y="{at + 12}">{parquet:,.0f}</text>')
        way = -1 if anchor == "end" else 1
        if -8 < way * (_x(parquet) - place) < 34:  # the dot is where the text would be
            place = _x(parquet) + way * 8
    parts.append(f'<text class="dim" x="{place:.1f}" y="{at + 12}" text-anchor="{anchor}">{ratio:.2g}</text>')
    return parts
