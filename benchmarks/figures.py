"""How a figure is found in what was measured: one engine beside another, in a work or a data set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shapes import SHAPES

if TYPE_CHECKING:
    from collections.abc import Mapping

OURS, BEST = "core-2.2", "best pylance"
NEEDS_MAPS = {"sparse maps"}
"""Data sets that pylance stores whole in files of version 2.2 only."""
PYLANCES = ("pylance-2.0", "pylance-2.1", "pylance-2.2")
LIKE_SIZE = "best pylance of like size"
PLAIN = "pylance-2.0"
"""Files of version 2.0: plain values. Only files of the same version are like them."""
_CHEAPEST_OF = {BEST: PYLANCES, LIKE_SIZE: PYLANCES[1:]}
"""Anchors that are the cheapest of several engines: of all file versions, or of those that are not plain values."""


@dataclass(frozen=True, slots=True)
class Figure:
    """What was measured.

    Attributes:
        value: Ratio of CPU time, of wall time where that decides, or a figure in the goal's unit.
        wall: Ratio of wall time; None if there is none.
        anchor: What stands for 1, in words.
    """

    value: float
    wall: float | None = None
    anchor: str = ""


@dataclass(frozen=True, slots=True)
class OfData:
    """One engine beside another in a work on a data set.

    Attributes:
        data: Name of the data set.
        work: Name of the work, or "bytes".
        theirs: The engine that stands for 1, or `LIKE_SIZE`; by default the cheapest of pylance's file versions.
        ours: The other one.
        by_wall: Wall time decides: it is a work that waits.
    """

    data: str
    work: str
    theirs: str = BEST
    ours: str = OURS
    by_wall: bool = False

    @property
    def engines(self) -> set[str]:
        """All that have to be measured."""
        return {self.ours, *_CHEAPEST_OF.get(self.theirs, (self.theirs,))}

    def __call__(self, results: Mapping[str, Any]) -> Figure | None:
        """The figure; None if it was not measured."""
        spent = results["data"].get(self.data, {}).get(self.work, {})
        return _beside(spent, self.ours, self.engines - {self.ours}, by_wall=self.by_wall)


def of_shape(shape: str, work: str, theirs: str = BEST) -> OfData | None:
    """A work on one of the other shapes of data, like beside like; None for what the other's files cannot hold."""
    if theirs == PLAIN:
        return None if shape in NEEDS_MAPS else OfData(shape, work, PLAIN, "core-2.0")
    return OfData(shape, work, "pylance-2.2" if shape in NEEDS_MAPS else theirs)


@dataclass(frozen=True, slots=True)
class OfShapes:
    """The worst figure of a work over all other shapes of data.

    Attributes:
        work: Name of the work.
        theirs: What stands for 1, see `OfData`.
    """

    work: str
    theirs: str = BEST

    @property
    def each(self) -> dict[str, OfData]:
        """What finds the figure of each shape."""
        found = {shape: of_shape(shape, self.work, self.theirs) for shape in SHAPES}
        return {shape: find for shape, find in found.items() if find is not None}

    def __call__(self, results: Mapping[str, Any]) -> Figure | None:
        """The figure; None if none was measured."""
        found = {shape: figure for shape, find in self.each.items() if (figure := find(results))}
        if not found:
            return None
        shape = max(found, key=lambda shape: found[shape].value)
        return Figure(found[shape].value, found[shape].wall, f"{shape}: {found[shape].anchor}")


@dataclass(frozen=True, slots=True)
class Single:
    """lance_core beside pylance in a measurement of its own.

    Attributes:
        work: Its name.
        theirs: How names of engines begin, of which the cheapest stands for 1.
        ours: Name of the other one.
        by_wall: By time on the clock, not of CPU.
    """

    work: str
    theirs: str = "pylance"
    ours: str = "lance_core"
    by_wall: bool = False

    def __call__(self, results: Mapping[str, Any]) -> Figure | None:
        """The figure; None if it was not measured."""
        spent = results["singles"].get(self.work, {})
        theirs = {name for name in spent if name.startswith(self.theirs)}
        return _beside(spent, self.ours, theirs, by_wall=self.by_wall)


def _beside(spent: Mapping[str, Any], ours: str, others: set[str], *, by_wall: bool = False) -> Figure | None:
    names = sorted(others & spent.keys())
    if ours not in spent or not names:
        return None
    if not isinstance(spent[ours], (list, tuple)):
        base = min(names, key=lambda name: spent[name])
        return Figure(spent[ours] / spent[base], anchor=f"{base}, {spent[base] / 1e6:,.1f} MB")
    place = 1 if by_wall else 0
    base = min(names, key=lambda name: spent[name][place])
    ratios = [mine / max(other, 1e-9) for mine, other in zip(spent[ours], spent[base], strict=True)]
    return Figure(ratios[place], ratios[1], f"{base}, {spent[base][place] * 1e3:,.2f} ms")


def import_memory(results: Mapping[str, Any]) -> Figure | None:
    """Memory of a fresh process that has imported lance_core, beside one that has imported pylance."""
    spent = results["singles"].get("import memory")
    if spent is None:
        return None
    return Figure(spent["lance_core"] / spent["pylance"], anchor=f"pylance, {spent['pylance']:.0f} MiB")


@dataclass(frozen=True, slots=True)
class Peak:
    """The most memory of a process that does nothing but this work, over the keys that it was measured with.

    Attributes:
        work: How the names of the measurements begin.
    """

    work: str

    def __call__(self, results: Mapping[str, Any]) -> Figure | None:
        """The figure in MiB; None if it was not measured."""
        found = {name: spent for name, spent in results["singles"].items() if name.startswith(f"memory: {self.work}")}
        if not found:
            return None
        most = max(found, key=lambda name: found[name]["lance_core"])
        return Figure(found[most]["lance_core"], anchor=f"{most[8:]}; pylance {found[most]['pylance']:.0f} MiB")


def growth_with_versions(results: Mapping[str, Any]) -> Figure | None:
    """Opening a table with a long history beside one with a short history, both by lance_core."""
    spent = results["singles"]
    if "open with many versions" not in spent:
        return None
    mine, other = spent["open with many versions"]["lance_core"], spent["open with 10 versions"]["lance_core"]
    return Figure(mine[0] / other[0], mine[1] / other[1], f"10 versions, {other[0] * 1e3:.2f} ms")


def requests(results: Mapping[str, Any]) -> Figure | None:
    """The worst ratio of requests to pylance's over all data sets, the first time and again."""
    worst: Figure | None = None
    for data, kept in results["data"].items():
        for work, counts in kept.get("requests", {}).items():
            ours, theirs = counts.get(OURS), counts.get("pylance-2.2")
            if ours is None or theirs is None:
                continue
            for place, kind in ((0, "first"), (2, "again")):
                ratio = ours[place] / max(theirs[place], 1)
                if worst is None or ratio > worst.value:
                    worst = Figure(ratio, anchor=f"{data}, {work}, {kind}: {ours[place]} to {theirs[place]}")
    return worst


@dataclass(frozen=True, slots=True)
class Memory:
    """The most memory that a work adds to a process, over all data sets, without mapped pages of files."""

    work: str

    def __call__(self, results: Mapping[str, Any]) -> Figure | None:
        """The figure; None if it was not measured."""
        found = {data: kept[self.work] for data, kept in results["data"].items() if OURS in kept.get(self.work, {})}
        if not found:
            return None
        most = max(found, key=lambda data: found[data][OURS][1])
        theirs = min((peaks[1] for name, peaks in found[most].items() if name in PYLANCES), default=float("nan"))
        return Figure(found[most][OURS][1], anchor=f"{most}; pylance {theirs:.0f} MiB")


def same_bytes(results: Mapping[str, Any]) -> Figure | None:
    """Kinds of files that differ when the same table is written twice."""
    found = results.get("same_bytes")
    if not found:
        return None
    others = [name for name, is_same in found.items() if not is_same]
    return Figure(len(others), anchor=", ".join(others) or f"{len(found)} kinds of files")
