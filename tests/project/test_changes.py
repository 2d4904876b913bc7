"""Each change that users notice is a file of `.changes`, of a type that the changelog has, in plain sentences."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]
FOLDER = ROOT / SETTINGS["directory"]
FRAGMENTS = [path for path in FOLDER.iterdir() if path.name not in {"README.md", Path(SETTINGS["template"]).name}]
LINK = re.compile(r"\]\(((?!https?://)[^)#\s]+)")


def test_names_tell_the_type():
    types = "|".join(kind["directory"] for kind in SETTINGS["type"])
    assert [path.name for path in FRAGMENTS if not re.fullmatch(rf"\+[a-z0-9-]+\.({types})\.md", path.name)] == []


def test_each_is_a_sentence_or_two_without_a_heading():
    for path in FRAGMENTS:
        text = path.read_text()
        assert text.endswith((".\n", ").\n")), path.name
        assert not text.startswith(("#", "-", "*")), path.name
        assert len(text) <= 600, path.name


def test_links_are_those_of_the_changelog():
    targets = [target for path in FRAGMENTS for target in LINK.findall(path.read_text())]
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_the_changelog_takes_them():
    assert SETTINGS["start_string"] in (ROOT / SETTINGS["filename"]).read_text()
