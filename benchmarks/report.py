"""What was asked and what was reached, as text; and the parts of the READMEs that are made of the published results.

    python benchmarks/report.py                  benchmarks/published/results.json into the READMEs, once more

No figure is typed by hand: between a pair of marks a README holds what is made here, and a test compares.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from figures import BEST, LIKE_SIZE, PLAIN, of_shape
from goals import REASONS, SHAPE_WORKS, SLACK, table
from growth_report import curves, growth_text
from picture import ROWS, bars
from shapes import SHAPES
from spark_figures import spark_text
from text_codecs import codecs_text, profiles_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

HERE = Path(__file__).parent
PUBLISHED = HERE / "published"
README = {
    HERE.parent / "README.md": ("summary",),
    HERE / "README.md": ("goals", "shapes", "huge growth", "growth", "spark", "far"),
    HERE / "text.md": ("codecs",),
    HERE / "explained.md": ("floors",),
    HERE.parent / "docs/compression.md": ("profiles",),
    HERE.parent / "docs/vector-search.md": ("vectors",),
    HERE.parent / "docs/full-text-search.md": ("texts",),
}
"""Files, and which of the parts below each has, one between each pair of marks."""
_MORE = "Each benchmark, and the reasons: [benchmarks/README.md](benchmarks/README.md)."
MARKS = "<!-- figures, written by benchmarks/run.py --publish -->", "<!-- end of figures -->"


_LEAST_SHOWN_S = 1e-5
SHOWN = {"aim": "stretch goal", "must": "target", "in the slack": "close", "MISSED": "**missed**"}


def verdicts(rows: list[dict[str, Any]]) -> str:
    """Count the goals by how far they were reached."""
    counts = Counter(row["verdict"] for row in rows)
    met, judged = counts["aim"] + counts["must"], sum(counts[name] for name in SHOWN)
    text = f"{met} of {judged} benchmarks meet their target ({counts['aim']} of them also their stretch goal)"
    text += f", {counts['in the slack']} are within {SLACK - 1:.0%} of it, {counts['MISSED']} miss it"
    return text + (f"; {counts['not measured']} were not measured" if counts["not measured"] else "")


def print_table(rows: list[dict[str, Any]]) -> None:
    """Asked and reached."""
    print(f"\n{'':>3} {'work':40}{'must':>6}{'aim':>6}{'CPU':>8}{'wall':>8}  {'':13} 1 is")
    for one in rows:
        cells = _cells(one)
        told = f"{one['verdict']:13} {one['anchor']}"
        print(f"{cells[0]:>3} {cells[1]:40}{cells[2]:>6}{cells[3]:>6}{cells[4]:>8}{cells[5]:>8}  {told}")
    print(verdicts(rows))


def _cells(one: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        str(one["row"] or ""),
        one["work"],
        *("" if one[name] is None else f"{one[name]:g}" for name in ("must", "aim")),
        "" if one["found"] is None else _short(one["found"]) + (f" {one['unit']}" if one["unit"] else ""),
        "" if one["wall"] is None else _short(one["wall"]),
    )


def _short(ratio: float) -> str:
    return f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.2g}"


def _where(results: Mapping[str, Any]) -> str:
    machine = results["machine"]
    peers = ", ".join(f"{name} {machine[name]}" for name in ("pylance", "pyarrow", "numpy") if name in machine)
    busy = " **The machine was busy, so the figures are rough.**" if machine["load"] > machine["cores"] / 2 else ""
    return (
        f"Python {machine['python']}, {peers}; {machine['cores']} cores, load {machine['load']:.1f} at the start; "
        f"{results['seconds'] // 60} minutes.{busy}"
    )


def goals_text(results: Mapping[str, Any]) -> str:
    """All goals, with what was reached."""
    rows = results["goals"]
    sizes = ", ".join(f"{name} {kept['rows']:,}" for name, kept in results["data"].items())
    lines = [
        f"{verdicts(rows)}.",
        "",
        f"Rows: {sizes}. {_where(results)}",
        "",
        "| | benchmark | target | stretch | CPU | wall | reached | 1 is |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for one in rows:
        shown = SHOWN.get(one["verdict"], one["verdict"])
        if one["verdict"] in ("in the slack", "MISSED") and one["row"] in REASONS:
            shown += f", [why](explained.md#{REASONS[one['row']]})"
        lines.append("| " + " | ".join([*_cells(one), shown, one["anchor"]]) + " |")
    return "\n".join(lines)


def summary_text(results: Mapping[str, Any]) -> str:
    """A short table."""
    rows = results["goals"]
    lines = [
        f"{verdicts(rows)}. {_MORE}",
        "",
        "| CPU time or bytes, pylance = 1 | lance_core | Parquet |",
        "|---|---|---|",
    ]
    for title, works in ROWS.items():
        found = [(name, find(results), parquet and parquet(results)) for name, find, parquet in works]
        found = [(name, figure, other) for name, figure, other in found if figure]
        if found:
            ours = ", ".join(f"{name} {_short(figure.value)}" for name, figure, _ in found)
            theirs = ", ".join(_short(other.value) for _, _, other in found if other)
            lines.append(f"| {title} | {ours} | {theirs} |")
    return "\n".join(lines)


def shapes_text(results: Mapping[str, Any]) -> str:
    """CPU time of all works on data of other shapes: beside pylance's cheapest file version, and of like bytes."""
    every, like, plain = (_shapes_beside(theirs, results) for theirs in (BEST, LIKE_SIZE, PLAIN))
    if not every:
        return "Not measured yet."
    return (
        f"{every}\n\nBeside the cheaper of versions 2.1 and 2.2:\n\n{like}\n\n"
        f"Files of version 2.0 of both, plain values:\n\n{plain}"
    )


def _shapes_beside(theirs: str, results: Mapping[str, Any]) -> str:
    works = ("bytes", *SHAPE_WORKS)
    lines = ["| | rows | " + " | ".join(works) + " |", "|---|" + "---:|" * (len(works) + 1)]
    for shape in SHAPES:
        finders = [of_shape(shape, work, theirs) for work in works]
        figures = [find and find(results) for find in finders]
        if any(figures):
            cells = ["" if one is None else f"{one.value:.2f}" for one in figures]
            lines.append(f"| {shape} | {results['data'][shape]['rows']:,} | " + " | ".join(cells) + " |")
    return "\n".join(lines) if len(lines) > 2 else ""


def far_text(results: Mapping[str, Any]) -> str:
    """What works on object storage cost."""
    far = results.get("far")
    if far is None:
        return "Not measured yet."
    lines = [
        f"Rows: {far['rows']:,}; {far['rounds']} rounds; load {far['load']:.1f} at the start.",
        "",
        "| | wall | CPU | s | pylance | requests | pylance | rounds | pylance | MB | pylance |",
        "|---|" + "---:|" * 10,
    ]
    for work, found in far["works"].items():
        ours, theirs = found["lance_core"], found["pylance"]
        cells = [_short(ours[name] / theirs[name]) for name in ("wall", "cpu")]
        for name, form in (("wall", ".2f"), ("requests", ".0f"), ("rounds", ".0f")):
            cells += [f"{ours[name]:{form}}", f"{theirs[name]:{form}}"]
        cells += [f"{side['bytes'] / 1e6:.1f}" for side in (ours, theirs)]
        lines.append(f"| {work} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def floors_text(results: Mapping[str, Any]) -> str:
    """Works that cost more than pylance's, and what their kernels cost alone."""
    floors = results.get("floors")
    if not floors:
        return "Not measured yet."
    kinds = list(next(iter(floors.values()))["kernels"])
    lines = [
        f"| ms of CPU | lance_core | of that kernels | {' | '.join(kinds)} | pylance | kernels, of pylance |",
        "|---|" + "---:|" * (len(kinds) + 4),
    ]
    for work, spent in floors.items():
        kernels, theirs = sum(spent["kernels"].values()), spent["pylance"]
        cells = [spent["lance_core"], kernels, *(spent["kernels"][kind] for kind in kinds), theirs]
        shown = " | ".join(_figure(cell * 1e3) if cell > _LEAST_SHOWN_S else "0" for cell in cells)
        lines.append(f"| {work} | {shown} ({spent['version']}) | {kernels / theirs:.2f} |")
    return "\n".join(lines)


def vectors_text(results: Mapping[str, Any]) -> str:
    """What searches of vectors and builds of their indices cost, for each size of table."""
    sizes = results.get("vectors", {})
    if not sizes:
        return "Not measured yet."
    return "\n\n".join(
        f"{size['rows']:,} vectors of {size['dimensions']} float32 in {size['partitions']} partitions; "
        f"load {size['load']:.1f} at the start:\n\n{_beside_pylance(size['works'])}"
        for size in sizes.values()
    )


def texts_text(results: Mapping[str, Any]) -> str:
    """What searches of texts and builds of their indices cost."""
    measured = results.get("texts")
    if measured is None:
        return "Not measured yet."
    return (
        f"{measured['rows']:,} texts; load {measured['load']:.1f} at the start:\n\n{_beside_pylance(measured['works'])}"
    )


def _beside_pylance(works: Mapping[str, Mapping[str, float]]) -> str:
    lines = ["| ms of CPU, or as named | lance_core | pylance | ratio |", "|---|---:|---:|---:|"]
    for work, both in works.items():
        ours, theirs = both["lance_core"], both["pylance"]
        lines.append(f"| {work} | {_figure(ours)} | {_figure(theirs)} | {ours / theirs:.2f} |")
    return "\n".join(lines)


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


PARTS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "summary": summary_text,
    "goals": goals_text,
    "shapes": shapes_text,
    "growth": growth_text,
    "huge growth": partial(growth_text, part="huge growth"),
    "spark": spark_text,
    "codecs": codecs_text,
    "profiles": profiles_text,
    "far": far_text,
    "floors": floors_text,
    "vectors": vectors_text,
    "texts": texts_text,
}


def parts_of(text: str) -> list[str]:
    """What stands between the marks of a README."""
    first, last = (re.escape(mark) for mark in MARKS)
    return re.findall(f"{first}\n(.*?)\n{last}", text, re.DOTALL)


def renewed(before: Mapping[str, Any], results: Mapping[str, Any]) -> dict[str, Any]:
    """Results of which some were measured anew.

    Args:
        before: What was published.
        results: Of some parts, data sets or works.

    Raises:
        ValueError: They are of other sizes.
    """
    if before["scale"] != results["scale"]:
        raise ValueError(f"published are results of {before['scale']} of the data, not of {results['scale']}")
    data = {
        name: _renewed_data(before["data"].get(name, {}), results["data"].get(name, {}))
        for name in {**before["data"], **results["data"]}
    }
    kept = {**before, **results, "data": data, "singles": {**before["singles"], **results["singles"]}}
    kept["seconds"] = before["seconds"] + results["seconds"]
    kept["goals"] = table(kept)
    return kept


def _renewed_data(before: Mapping[str, Any], works: Mapping[str, Any]) -> dict[str, Any]:
    """Works of a data set, anew as far as they were measured; the bytes of engines that were not asked stay."""
    kept = {**before, **works}
    if "bytes" in kept:
        kept["bytes"] = {**before.get("bytes", {}), **works.get("bytes", {})}
    return kept


def publish(results: Mapping[str, Any]) -> list[Path]:
    """Write results, picture and the parts of the READMEs; which files."""
    PUBLISHED.mkdir(exist_ok=True)
    kept, drawn = PUBLISHED / "results.json", PUBLISHED / "bars.svg"
    kept.write_text(json.dumps(results, indent=1) + "\n")
    drawn.write_text(bars(results))
    written = [kept, drawn]
    if "growth" in results:
        written.append(PUBLISHED / "growth.svg")
        written[-1].write_text(curves(results))
    first, last = MARKS
    pattern = re.compile(f"{re.escape(first)}\n.*?{re.escape(last)}", re.DOTALL)
    for path, parts in README.items():
        before = path.read_text() if path.exists() else ""
        made = iter(parts)
        after = pattern.sub(lambda _, made=made: f"{first}\n{PARTS[next(made)](results)}\n{last}", before)
        if after != before:
            path.write_text(after)
            written.append(path)
    return written


def main() -> None:
    """Publish again what was published, after a change of goals, picture or text."""
    results = json.loads((PUBLISHED / "results.json").read_text())
    results["goals"] = table(results)
    for path in publish(results):
        print(path.relative_to(HERE.parent))


if __name__ == "__main__":
    main()
