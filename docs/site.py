"""Build the documentation site: ``python docs/site.py build`` or ``serve``; other words are options of mkdocs.

The pages keep their places in the repository, so that links among them work there as well as here. What mkdocs reads is
a copy of them, with a page for each package made from its docstrings.
"""

from __future__ import annotations

import importlib
import inspect
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from mkdocs.__main__ import cli
from tables import PAGES_OF_TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
SITE = ROOT / ".site"
PAGES = SITE / "pages"
COPIED = ("*.md", "docs", "tests/README.md", "benchmarks/*.md", "benchmarks/published", "lance_core/README.md")
PICTURES = "example_project/images"
PACKAGES = (
    "lance_core",
    "lance_core.optimize",
    "lance_core.errors",
    "lance_core.spark",
    "lance_core.torch",
    "lance_dagster",
)
SECTIONS = {
    "How-to": (
        "docs/how-to.md",
        "docs/spark.md",
        "docs/spark-clusters.md",
        "docs/object-stores.md",
        "docs/command-line.md",
    ),
    "In production": ("docs/deployment.md", "docs/incidents.md", "docs/observing.md"),
    "Reference": ("reference/*.md", "docs/supported.md", "docs/versions.md", "docs/support.md"),
    "Understanding": ("docs/guarantees.md", "docs/comparison.md", "docs/security.md", "benchmarks/README.md"),
    "Design": ("docs/design/README.md", "lance_core/README.md", "docs/design/*.md"),
    "Contributing": ("CONTRIBUTING.md", "docs/contributing/*.md", "tests/README.md", "SECURITY.md", "CHANGELOG.md"),
}
"""Pages of `docs` that no section names are How-to."""
_REFUSING = {"lance_core.unsupported", "lance_core.spark.delta_names"}
"""Makes the methods that pylance has and we have not."""
_LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]+)\]\((?!https?://)(?P<target>[^)#\s]+)[^)]*\)")


def main() -> None:
    """Copy the pages, write the settings, and run mkdocs."""
    shutil.rmtree(SITE, ignore_errors=True)
    for pattern in (*COPIED, PICTURES):
        for path in sorted(ROOT.glob(pattern)):
            _copy(path, PAGES / path.relative_to(ROOT))
    (PAGES / "README.md").rename(PAGES / "index.md")
    for page in PAGES.rglob("*.md"):
        page.write_text(_linked(page), encoding="utf-8")
    documented: set[Any] = set()
    for package in PACKAGES:
        page = PAGES / "reference" / f"{package}.md"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(_reference(package, documented), encoding="utf-8")
    for name, tables in PAGES_OF_TABLES.items():
        (PAGES / "reference" / f"{name}.md").write_text(tables(), encoding="utf-8")
    nav = _nav()
    (PAGES / "llms.txt").write_text(_llms(nav), encoding="utf-8")
    settings = yaml.safe_load((ROOT / "docs" / "mkdocs.yml").read_text(encoding="utf-8"))
    settings |= {"docs_dir": str(PAGES), "site_dir": str(SITE / "html"), "nav": nav}
    written = SITE / "mkdocs.yml"
    written.write_text(yaml.safe_dump(settings), encoding="utf-8")
    command, *options = sys.argv[1:] or ["build"]
    cli([command, "--config-file", str(written), *options])


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.py", "*.yml", "__pycache__"))
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)


def _linked(page: Path) -> str:
    """Return a page whose links lead to pages and pictures; what is code is named only, and not linked."""
    place = page.relative_to(PAGES)

    def link(match: re.Match[str]) -> str:
        target = (ROOT / place).parent.joinpath(match["target"]).resolve()
        if target == ROOT / "README.md":
            return match[0].replace("README.md", "index.md")
        is_page = target.is_relative_to(ROOT) and (PAGES / target.relative_to(ROOT)).is_file()
        return match[0] if is_page else match["text"]

    return _LINK.sub(link, page.read_text(encoding="utf-8"))


def _reference(package: str, documented: set[Any]) -> str:
    """Return the page of a package: its public functions, then its classes, as far as no other page has them."""
    module = importlib.import_module(package)
    parts = [f"# {package}\n", f"{inspect.getdoc(module) or ''}\n"]
    own = [name for name, value in vars(module).items() if getattr(value, "__module__", None) == package]
    names = [name for name in getattr(module, "__all__", own) if not name.startswith("_")]
    for name in sorted(names, key=lambda name: (inspect.isclass(getattr(module, name)), name)):
        value = getattr(module, name)
        value = getattr(value, "__func__", value)
        if (inspect.isclass(value) or inspect.isfunction(value)) and value not in documented:
            documented.add(value)
            parts += [_documented(value, heading=name, level=2), *_methods_defined_elsewhere(value)]
    return "\n".join(parts)


def _documented(value: Any, *, heading: str, level: int) -> str:
    options = f"{{heading: {heading}, toc_label: {heading.rpartition('.')[2]}, heading_level: {level}}}"
    return f"::: {value.__module__}.{value.__qualname__}\n    options: {options}\n"


def _methods_defined_elsewhere(value: object) -> Iterator[str]:
    """Yield the methods of a class that are functions of other modules, as those of `LanceDataset` are."""
    for name, method in vars(value).items() if inspect.isclass(value) else ():
        function = getattr(method, "__func__", method)
        is_own = not inspect.isfunction(function) or function.__module__ in {value.__module__, *_REFUSING}
        if not is_own and not name.startswith("_"):
            yield _documented(function, heading=f"{value.__name__}.{name}", level=3)


def _nav() -> list[dict[str, object]]:
    named = {section: _listed(patterns) for section, patterns in SECTIONS.items()}
    taken = {"docs/start.md", "docs/tutorial.md", *(page for pages in named.values() for page in pages)}
    named["How-to"] += [page for page in _listed(("docs/*.md",)) if page not in taken]
    start = ["index.md", "docs/start.md"]
    first: list[dict[str, object]] = [{"Start": start}, {"Tutorial": "docs/tutorial.md"}]
    return [*first, *({section: pages} for section, pages in named.items())]


def _llms(nav: list[dict[str, object]]) -> str:
    """Return the list of pages for language models (https://llmstxt.org): each with the beginning of its first text."""
    lines = ["# lance-dagster", "", "> Lance tables for Dagster and Spark, in pure Python"]
    for section in nav:
        for title, pages in section.items():
            lines += ["", f"## {title}", ""]
            for page in [pages] if isinstance(pages, str) else list(pages):  # pyright: ignore[reportArgumentType]
                heading, _, text = (PAGES / page).read_text(encoding="utf-8").partition("\n")
                texts = (part for part in text.split("\n\n") if re.match(r"\s*(?!```)[A-Z`]", part))
                about = re.sub(r"\s+", " ", _LINK.sub(r"\g<text>", next(texts, ""))).strip()[:200]
                target = re.sub(r"README\.md$", "index.md", page).removesuffix(".md")
                lines.append(f"- [{heading.lstrip('# ')}]({target}.html): {about}")
    return "\n".join([*lines, ""])


def _listed(patterns: tuple[str, ...]) -> list[str]:
    pages = [str(path.relative_to(PAGES)) for pattern in patterns for path in sorted(PAGES.glob(pattern))]
    return list(dict.fromkeys(pages))


if __name__ == "__main__":
    main()
