"""Build the documentation site: ``python docs/site.py build`` or ``serve``; other words are options of mkdocs.

The pages keep their places in the repository, so that links among them work there as well as here. What mkdocs reads is
a copy of them, with pages for each package made from its docstrings. The settings, and the order of the pages, are in
``docs/mkdocs.yml``.
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
    "lance_core.query",
    "lance_core.optimize",
    "lance_core.file",
    "lance_core.namespace",
    "lance_core.spark",
    "lance_core.torch",
    "lance_core.telemetry",
    "lance_core.otel",
    "lance_core.pipes",
    "lance_core.errors",
    "lance_dagster",
)
_MANY_METHODS = 40
"""A class with more methods that other modules define has a page of its own."""
_MAX_ABOUT = 250
"""Most characters that llms.txt has of a page, if its first sentence is not longer."""
_REFUSING = {"lance_core.common.unsupported", "lance_core.spark.functions.delta_names"}
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
    reference = PAGES / "reference"
    reference.mkdir()
    documented: set[Any] = set()
    names = [name for package in PACKAGES for name in _write_reference(package, documented, reference)]
    for name, tables in PAGES_OF_TABLES.items():
        (reference / f"{name}.md").write_text(tables(), encoding="utf-8")
    settings = yaml.safe_load((ROOT / "docs" / "mkdocs.yml").read_text(encoding="utf-8"))
    settings["nav"] = _nav(settings["nav"], [f"reference/{name}.md" for name in names])
    settings |= {"docs_dir": str(PAGES), "site_dir": str(SITE / "html")}
    (PAGES / "llms.txt").write_text(_llms(settings["nav"]), encoding="utf-8")
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


def _write_reference(package: str, documented: set[Any], folder: Path) -> Iterator[str]:
    """Write the pages of a package, as far as no other has its names, and yield their names.

    Functions come first, then classes. A class with many methods has a page of its own.
    """
    module = importlib.import_module(package)
    parts = [f"# {package}\n", f"{inspect.getdoc(module) or ''}\n"]
    own = [name for name, value in vars(module).items() if getattr(value, "__module__", None) == package]
    names = [name for name in getattr(module, "__all__", own) if not name.startswith("_")]
    yield package
    for name in sorted(names, key=lambda name: (inspect.isclass(getattr(module, name)), name)):
        value = getattr(module, name)
        value = getattr(value, "__func__", value)
        if not (inspect.isclass(value) or inspect.isfunction(value)) or value in documented:
            continue
        documented.add(value)
        text = [_documented(value, heading=name, level=2), *_methods_defined_elsewhere(value)]
        if len(text) > _MANY_METHODS:
            page = f"{package}.{name}"
            (folder / f"{page}.md").write_text("\n".join([f"# {page}\n", *text]), encoding="utf-8")
            parts.append(f"## {name}\n\n[{page}]({page}.md) has a page of its own.\n")
            yield page
        else:
            parts += text
    (folder / f"{package}.md").write_text("\n".join(parts), encoding="utf-8")


def _documented(value: Any, *, heading: str, level: int) -> str:
    options = f"{{heading: {heading}, toc_label: {heading.rpartition('.')[2]}, heading_level: {level}}}"
    return f"::: {value.__module__}.{value.__qualname__}\n    options: {options}\n"


def _methods_defined_elsewhere(value: object) -> Iterator[str]:
    """Yield the methods of a class that are functions of other modules, as those of `LanceDataset` are."""
    for name, method in vars(value).items() if inspect.isclass(value) else ():
        function = inspect.unwrap(getattr(method, "__func__", method))
        is_own = not inspect.isfunction(function) or function.__module__ in {value.__module__, *_REFUSING}
        if not is_own and not name.startswith("_"):
            yield _documented(function, heading=f"{value.__name__}.{name}", level=3)


def _nav(entries: list[Any], reference: list[str]) -> list[Any]:
    """Return entries of the navigation with their patterns resolved; ``API`` stands for the pages of packages."""
    nav: list[Any] = []
    for entry in entries:
        if isinstance(entry, dict):
            ((title, pages),) = entry.items()
            nav.append({title: pages if isinstance(pages, str) else _nav(pages, reference)})
        elif entry == "API":
            nav += reference
        else:
            found = sorted(str(path.relative_to(PAGES)) for path in PAGES.glob(entry))
            nav += [page for page in found if page == entry or page not in entries]
    return nav


def _llms(nav: list[Any]) -> str:
    """Return the list of pages for language models (https://llmstxt.org): each with its first sentences."""
    lines = ["# lance-dagster", "", "> Lance tables for Dagster and Spark, in pure Python"]
    for section in nav:
        ((title, pages),) = section.items()
        lines += ["", f"## {title}", "", *map(_llms_line, _flat(pages))]
    return "\n".join([*lines, ""])


def _flat(entry: Any) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    else:
        for part in entry.values() if isinstance(entry, dict) else entry:
            yield from _flat(part)


def _llms_line(page: str) -> str:
    heading, _, text = (PAGES / page).read_text(encoding="utf-8").partition("\n")
    texts = (part for part in text.split("\n\n") if re.match(r"\s*(?!```)[A-Z`]", part))
    about = re.sub(r"\s+", " ", _LINK.sub(r"\g<text>", next(texts, ""))).strip()
    while len(about) > _MAX_ABOUT and ". " in about:
        about = about.rpartition(". ")[0] + "."
    target = re.sub(r"README\.md$", "index.md", page).removesuffix(".md")
    return f"- [{heading.lstrip('# ')}]({target}.html)" + (f": {about}" if about else "")


if __name__ == "__main__":
    main()
