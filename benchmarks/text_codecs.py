"""Text in each codec that the format has for short strings: no one is both small and cheap to read.

lance_core writes the data set ``text`` with each, asked for in the metadata of the fields, in chunks of several sizes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from figures import PYLANCES
from side_by_side import Plan, run_data_set

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

DATA = "text"
CHUNKED = {"zstd": (4, 8, 16, 32), "LZ4": (4, 8, 16, 32)}
PROFILES = {"core-2.2-fast": "profile fast", "core-2.2": "profile balanced", "core-2.2-small": "profile small"}
"""Engines, and the compression profile of each."""
SETTINGS = {
    **PROFILES,
    **{f"core-2.2-{codec.lower()}-{kib}": f"{codec}, {kib} KiB" for codec, sizes in CHUNKED.items() for kib in sizes},
    "core-2.2-fsst": "FSST",
    "core-2.2-none": "none",
}
"""Engines, and what is written."""

ASKED = {
    "bytes": 1.0, "write": 0.9, "scan": 0.8, "filter 1%": 0.6, "filter 50%": 1.0, "take 100": 0.5, "take 10k": 0.4,
}  # fmt: skip
"""Works, and the most that is asked of each beside the cheapest of pylance's file versions."""
BESIDE = {"write": ("pylance-2.1",), "scan": ("pylance-2.1",)}
"""Works that are asked beside a certain version, as in the table of goals."""


def measure_codecs(root: Path, scale: float, rounds: int) -> dict[str, Any]:
    """For each work, what each engine needed; see `run_data_set`."""
    engines = (*SETTINGS, *PYLANCES)
    works = {work: engines for work in ASKED if work != "bytes"}
    return run_data_set(DATA, Plan(works=works, scale=scale, rounds=rounds), root)


def ratios(kept: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """For each engine and work CPU seconds or bytes, pylance's least = 1."""
    found: dict[str, dict[str, float]] = {engine: {} for engine in SETTINGS}
    for work in ASKED:
        spent = {name: one[0] if isinstance(one, (list, tuple)) else one for name, one in kept.get(work, {}).items()}
        bases = [spent[name] for name in BESIDE.get(work, PYLANCES) if name in spent]
        for engine in SETTINGS:
            if bases and engine in spent:
                found[engine][work] = spent[engine] / min(bases)
    return found


def profiles_text(results: Mapping[str, Any]) -> str:
    """What each compression profile leaves and costs."""
    lines = ["| | " + " | ".join(ASKED) + " |", "|---|" + "---:|" * len(ASKED)]
    found = ratios(results["data"].get(DATA, {}))
    for engine, profile in PROFILES.items():
        cells = [f"{found[engine][work]:.2f}" if work in found[engine] else "" for work in ASKED]
        lines.append(f"| {profile.removeprefix('profile ')} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def codecs_text(results: Mapping[str, Any]) -> str:
    """What each codec leaves and costs."""
    names = [f"{work} (at most {most:g})" for work, most in ASKED.items()]
    lines = ["| | " + " | ".join(names) + " |", "|---|" + "---:|" * len(names)]
    for engine, found in ratios(results.get("codecs", {})).items():
        cells = [_cell(found.get(work), most) for work, most in ASKED.items()]
        lines.append(f"| {SETTINGS[engine]} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(ratio: float | None, most: float) -> str:
    """Bold where it is as asked."""
    if ratio is None:
        return ""
    return f"**{ratio:.2f}**" if ratio <= most else f"{ratio:.2f}"
