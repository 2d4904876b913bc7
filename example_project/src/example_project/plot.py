"""A line chart as SVG, small enough for the metadata of a run."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTH, HEIGHT, MARGIN = 460, 260, 48
COLORS = ("#1f6feb", "#bf3989")


def line_chart(title: str, labels: Sequence[object], lines: dict[str, Sequence[float]], *, axis: str) -> str:
    """Draw numbers from 0 to 1, one line for each name, over evenly spaced labels."""
    right, bottom = WIDTH - MARGIN, HEIGHT - MARGIN
    step = (right - MARGIN) / max(len(labels) - 1, 1)
    xs = [MARGIN + number * step for number in range(len(labels))]
    parts = [f'<text x="{WIDTH / 2}" y="20" text-anchor="middle" font-weight="bold">{title}</text>']
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = bottom - share * (bottom - MARGIN)
        parts.append(f'<line x1="{MARGIN}" x2="{right}" y1="{y}" y2="{y}" stroke="#d0d7de"/>')
        parts.append(f'<text x="{MARGIN - 8}" y="{y + 4}" text-anchor="end">{share:g}</text>')
    parts += [
        f'<text x="{x}" y="{bottom + 16}" text-anchor="middle">{label}</text>'
        for x, label in zip(xs, labels, strict=True)
    ]
    parts.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 8}" text-anchor="middle">{axis}</text>')
    for number, (name, values) in enumerate(lines.items()):
        color = COLORS[number % len(COLORS)]
        corners = " ".join(f"{x},{bottom - value * (bottom - MARGIN)}" for x, value in zip(xs, values, strict=True))
        parts.append(f'<polyline points="{corners}" fill="none" stroke="{color}" stroke-width="2"/>')
        parts.append(
            f'<text x="{right}" y="{bottom - 30 + 16 * number}" text-anchor="end" fill="{color}">{name}</text>'
        )
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif"'
    return f'{head} font-size="12"><rect width="100%" height="100%" fill="white"/>{"".join(parts)}</svg>'


def as_markdown(name: str, svg: str) -> str:
    """Return Markdown that shows a picture without a file."""
    return f"![{name}](data:image/svg+xml;base64,{b64encode(svg.encode()).decode()})"
