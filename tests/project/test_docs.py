"""Pages for contributors name only what exists: paths, modules, links between pages, hooks."""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [
        ROOT / "CONTRIBUTING.md",
        ROOT / "CHANGELOG.md",
        ROOT / "SECURITY.md",
        ROOT / "lance_core" / "README.md",
        *(ROOT / "docs").rglob("*.md"),
    ]
)
FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(((?!https?://)[^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
PATH = re.compile(r"[\w./-]+(?:\.(?:py|md|proto|toml|yaml|json|lock)|/)|\.[a-z][\w-]+|Makefile")
DOTTED = re.compile(r"(?:lance_core|lance_dagster|example_project)(?:\.\w+)+")
COMMAND_PATH = re.compile(r"\b(?:tests|benchmarks)/[\w./]*\w")


def of_pages(pattern, text_of):
    return [(page, found) for page in PAGES for found in dict.fromkeys(pattern.findall(text_of(page)))]


def without_blocks(page):
    return FENCE.sub("", page.read_text())


def is_there(page, path):
    if path.startswith((".venv/", "dist/", "_")):
        return True
    return any((base / path).exists() for base in (ROOT, page.parent))


@cache
def source_of(module):
    path = ROOT.joinpath(*module.split("."))
    files = (path.with_suffix(".py"), path / "__init__.py")
    return next((file.read_text() for file in files if file.is_file()), None)


def is_name(dotted):
    parts = dotted.split(".")
    for end in range(len(parts), 0, -1):
        source = source_of(".".join(parts[:end]))
        if source is not None:
            return all(re.search(rf"\b{part}\b", source) for part in parts[end:])
    return False


def slug(heading):
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def test_there_are_pages_with_paths_and_links():
    assert len(PAGES) > 15
    assert len(of_pages(CODE, without_blocks)) > 200


def missing(found, is_right):
    return [f"{page.relative_to(ROOT)}: {text}" for page, text in found if not is_right(page, text)]


def is_file_or_prefix(_page, path):
    return (ROOT / path).exists() or bool(list(ROOT.glob(f"{path}*")))


def resolves(page, link):
    target, _, anchor = link.partition("#")
    path = (page.parent / target) if target else page
    if not path.exists():
        return False
    return not anchor or anchor in {slug(one) for one in HEADING.findall(FENCE.sub("", path.read_text()))}


def test_paths_exist():
    found = [(page, text) for page, text in of_pages(CODE, without_blocks) if PATH.fullmatch(text)]
    assert len(found) > 100
    assert missing(found, is_there) == []


def test_paths_in_commands_exist():
    assert missing(of_pages(COMMAND_PATH, Path.read_text), is_file_or_prefix) == []


def test_modules_and_their_names_exist():
    found = [(page, text) for page, text in of_pages(CODE, without_blocks) if DOTTED.fullmatch(text)]
    assert found
    assert missing(found, lambda _page, dotted: is_name(dotted)) == []


def test_links_resolve():
    found = of_pages(LINK, without_blocks)
    assert len(found) > 30
    assert missing(found, resolves) == []


def test_each_page_is_linked_from_a_list():
    lists = (ROOT / "CONTRIBUTING.md", ROOT / "docs" / "design" / "README.md", ROOT / "docs" / "how-to.md")
    linked = {(one.parent / link).resolve() for one in lists for link in LINK.findall(one.read_text())}
    pages = {page for page in PAGES if page.parent.name in {"design", "contributing", "how-to"}}
    assert pages - linked == set()


def test_each_design_note_has_all_parts():
    for page in (ROOT / "docs" / "design").glob("*.md"):
        if page.name == "README.md":
            continue
        notes = page.read_text().split("\n## ")[1:]
        assert notes, page.name
        for note in notes:
            parts = re.findall(r"^\*\*(\w+)\.\*\*", note, re.MULTILINE)
            assert parts == ["Context", "Decision", "Consequence", "Evidence"], (page.name, note[:60])


def test_hooks_run_the_commands_of_make_lint():
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    hooks = [hook for repo in config["repos"] for hook in repo["hooks"]]
    assert {hook["language"] for hook in hooks} == {"system"}
    commands = {hook["entry"].removeprefix(".venv/bin/").removesuffix(" --force-exclude") for hook in hooks}
    makefile = (ROOT / "Makefile").read_text()
    targets = re.search(r"^lint: (.+)$", makefile, re.MULTILINE).group(1).split()
    recipes = [re.search(rf"^{target}:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE).group(1) for target in targets]
    assert commands == {line.removeprefix("\t@$(BIN)/") for recipe in recipes for line in recipe.splitlines()}


def environment_variables():
    """Names of variables that the packages read."""
    sources = [path.read_text() for name in ("lance_core", "lance_dagster") for path in (ROOT / name).rglob("*.py")]
    return set(re.findall(r"""VARIABLE = "(LANCE_\w+)\"""", "".join(sources))) | {"LANCE_CORE_MAX_FIELDS"}


@pytest.mark.slow
def test_the_site_is_built_without_a_warning():
    words = [sys.executable, str(ROOT / "docs" / "site.py"), "build"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    html = ROOT / ".site" / "html"
    pages = {page.relative_to(ROOT).with_suffix(".html") for page in (ROOT / "docs").rglob("*.md")}
    built = {page.relative_to(html) for page in (html / "docs").rglob("*.html")}
    assert {page.with_name("index.html") if page.stem == "README" else page for page in pages} == built
    reference = "".join(page.read_text() for page in (html / "reference").glob("*.html"))
    for name in ("dataset.dataset", "methods.changing.merge_insert", "optimize.DatasetOptimizer", "errors.LanceError"):
        assert f'id="lance_core.{name}"' in reference, name
    assert "LanceDataset.merge_insert" in reference
    for name in ("commit_conflict", "regexp_like", "lance/schema_mode", "replace_where", *environment_variables()):
        assert f"<code>{name}</code>" in reference, name
    listed = LINK.findall((html / "llms.txt").read_text())
    assert len(listed) > 40
    assert [link for link in listed if not (html / link).is_file()] == []


def test_each_picture_of_the_pages_is_taken_by_the_script():
    script = ast.parse((ROOT / "docs/pictures.py").read_text())
    calls = [
        node for node in ast.walk(script) if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Picture"
    ]
    taken = {keyword.value.value for call in calls for keyword in call.keywords if keyword.arg == "name"}
    texts = "".join(page.read_text() for page in (ROOT / "docs/how-to").glob("*.md"))
    shown = set(re.findall(r"images/(\w+)\.png\)", texts))
    there = {path.stem for path in (ROOT / "example_project/images").glob("*.png")}
    assert taken == shown == there
