"""Bars of what was measured, as SVG."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_WORKS = (
    ("taxi", "bytes"), ("taxi", "write"), ("taxi", "scan"), ("taxi", "2 columns"), ("taxi", "filter 1%"),
    ("taxi", "take 100"), ("text", "bytes"), ("text", "write"), ("text", "scan"), ("text", "take 100"),
    ("nested", "bytes"), ("nested", "scan"), ("nested", "take 100"), ("embeddings", "write"), ("embeddings", "scan"),
    ("embeddings", "take 100"),
)  # fmt: skip
_ENGINES = {
    "core-2.2": ("lance_core", "#1f6feb"),
    "pylance-2.2": ("pylance", "#d29922"),
    "parquet": ("Parquet (zstd)", "#8b949e"),
    "delta": ("Delta", "#a371f7"),
}
_LEFT, _WIDTH, _LINE, _TOP, _MOST = 150, 560, 13, 46, 3.0


def bars(results: Mapping[str, Any]) -> str:
    """CPU time (or bytes) of each engine, pylance = 1; a bar that is longer than the picture says so."""
    groups = [(f"{data}: {work}", found) for data, work in _WORKS if (found := _ratios(results, data, work))]
    parts: list[str] = []
    at = _TOP
    for title, ratios in groups:
        parts += _group(title, ratios, at)
        at += _LINE * len(ratios) + 9
    one = _LEFT + _WIDTH / _MOST
    legend = [
        f'<rect x="{_LEFT + 120 * place}" y="12" width="10" height="10" fill="{color}"/>'
        f'<text x="{_LEFT + 120 * place + 15}" y="21">{name}</text>'
        for place, (name, color) in enumerate(_ENGINES.values())
    ]
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 800 {at + 8}" font-family="sans-serif" font-size="11">',
        f'<rect width="800" height="{at + 8}" fill="white"/>',
        *legend,
        f'<text x="{_LEFT}" y="38" fill="#555">CPU time and bytes, pylance = 1 (shorter is better)</text>',
        f'<line x1="{one}" y1="{_TOP}" x2="{one}" y2="{at}" stroke="#bbb" stroke-dasharray="3 3"/>',
    ]
    return "\n".join([*head, *parts, "</svg>\n"])


def _ratios(results: Mapping[str, Any], data: str, work: str) -> dict[str, float]:
    spent = results["data"].get(data, {}).get(work, {})
    if "pylance-2.2" not in spent or "core-2.2" not in spent:
        return {}
    numbers = {name: _number(spent[name]) for name in _ENGINES if name in spent}
    return {name: number / numbers["pylance-2.2"] for name, number in numbers.items()}


def _number(found: float | Sequence[float]) -> float:
    return found if isinstance(found, (int, float)) else found[0]


def _group(title: str, ratios: Mapping[str, float], at: float) -> list[str]:
    parts = [f'<text x="{_LEFT - 8}" y="{at + _LINE * len(ratios) / 2 + 4}" text-anchor="end">{title}</text>']
    for place, (name, ratio) in enumerate(ratios.items()):
        y, width = at + _LINE * place, _WIDTH * min(ratio, _MOST) / _MOST
        told = f"{ratio:.2f}" if ratio < 10 else f"{ratio:,.0f}"
        parts.append(
            f'<rect x="{_LEFT}" y="{y}" width="{width:.1f}" height="{_LINE - 2}" fill="{_ENGINES[name][1]}"/>'
            f'<text x="{_LEFT + width + 4:.1f}" y="{y + 9}" font-size="9">{told}{" →" if ratio > _MOST else ""}</text>'
        )
    return parts
