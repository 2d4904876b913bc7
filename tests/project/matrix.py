"""Run tests with other versions of pylance, Spark, Dagster, Python and our dependencies; write `docs/versions.md`.

    python tests/project/matrix.py --pylance 13 14 --spark 4.2 --dagster lowest newest
    python tests/project/matrix.py --python 3.13 --dependencies lowest newest

pylance, Spark and Dagster are put over the environment of this process, without their dependencies; other Pythons and
dependencies get environments of their own. The table keeps the rows of earlier runs, with their dates.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "versions.md"
BEGIN, END = "<!-- rows, written by tests/project/matrix.py -->", "<!-- end of rows -->"
COMPAT = (
    "test_tables_roundtrip",
    "test_tables_methods",
    "test_tables_scanner",
    "test_types",
    "test_files_2_2",
    "test_stale_handles",
    "test_repair",
)
"""Tests of tables and files in both directions; names that older versions of pylance lack are for `test_api`."""
SPARK = ("test_read", "test_write", "test_merge", "test_table", "test_sql", "test_sql_tables", "test_planner_queries")
DAGSTER = ("test_io_manager", "test_partitioned", "test_checks", "test_maintenance", "test_sensors", "test_components")
DAGSTER_PACKAGES = ("dagster", "dagster-pipes", "dagster-shared", "dagster-graphql", "dagster-webserver")
FAST = ["-m", "not slow", "tests/core/test_dataset_read.py", "tests/core/test_dataset_write.py", "tests/core/format"]


def main(words: list[str]) -> None:
    """Run the tests of each environment and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pylance", nargs="*", default=None, metavar="MAJOR")
    parser.add_argument("--spark", nargs="*", default=None, metavar="MINOR")
    parser.add_argument("--dagster", nargs="*", default=None, choices=("lowest", "newest"))
    parser.add_argument("--python", nargs="*", default=None, metavar="VERSION")
    parser.add_argument("--dependencies", nargs="*", default=None, choices=("locked", "lowest", "newest"))
    given = parser.parse_args(words)
    rows = {row[0]: row for row in read_rows()}
    with tempfile.TemporaryDirectory() as folder:
        for major in given.pylance or ():
            add(
                rows, f"pylance {major}", *with_packages([f"pylance=={major}.*"], files("compat", COMPAT), Path(folder))
            )
        for minor in given.spark or ():
            add(rows, f"Spark {minor}", *with_packages([f"pyspark=={minor}.*"], files("spark", SPARK), Path(folder)))
        for choice in given.dagster or ():
            wanted = f"=={lowest()['dagster']}" if choice == "lowest" else "<2"
            packages = [f"{name}{wanted}" for name in DAGSTER_PACKAGES]
            add(rows, f"{choice} Dagster", *with_packages(packages, files("dagster", DAGSTER), Path(folder)))
        for version in given.python or ():
            add(rows, f"Python {version}", *with_environment(Path(folder), f"python{version}", "locked"))
        for choice in given.dependencies or ():
            add(rows, f"{choice} dependencies", *with_environment(Path(folder), sys.executable, choice))


def files(folder: str, names: tuple[str, ...]) -> list[str]:
    """Return the paths of test files."""
    return [f"tests/{folder}/{name}.py" for name in names]


def with_packages(packages: list[str], tests: list[str], folder: Path) -> tuple[str, str]:
    """Run tests with other versions of some packages; the version of the first, and the outcome."""
    name = re.match(r"\w+", packages[0])[0]
    target = Path(sys.prefix) / re.sub(r"==([\d.]+)\.\*$", r"-\1", packages[0])  # as `make test-spark` unpacks it
    if not target.is_dir():
        target = folder / re.sub(r"\W", "", packages[0])
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target)]
        if run([*install, *packages]).returncode:
            return "", "not in the registry"
    number = next(target.glob(f"{name}-*.dist-info")).name.removeprefix(f"{name}-").removesuffix(".dist-info")
    return number, outcome([sys.executable, *tests], os.pathsep.join([str(target), str(ROOT)]))


def with_environment(folder: Path, python: str, dependencies: str) -> tuple[str, str]:
    """Run fast tests in a new environment; the version of Python and the outcome."""
    place = folder / re.sub(r"\W", "", f"{Path(python).name}{dependencies}")
    if shutil.which(python) is None or run([python, "-m", "venv", str(place)]).returncode:
        return "", "no such interpreter here"
    constraints = folder / f"{dependencies}.txt"
    constraints.write_text(constraints_of(dependencies))
    program = str(place / "bin" / "python")
    run([program, "-m", "pip", "install", "--quiet", "--upgrade", "pip>=25.1"])
    install = [program, "-m", "pip", "install", "--quiet", "--constraint", str(constraints)]
    installed = run([*install, str(ROOT), "--group", "test"])
    if installed.returncode:
        return "", f"cannot be installed: {installed.stderr.strip().splitlines()[-1]}"
    number = run([program, "-c", "import platform; print(platform.python_version())"]).stdout.strip()
    return number, outcome([program, *FAST], str(ROOT))


def constraints_of(dependencies: str) -> str:
    """Return a file of constraints: what is locked, the lowest versions that are allowed, or nothing."""
    if dependencies == "newest":
        return ""
    if dependencies == "locked":
        return (ROOT / "requirements.lock").read_text()
    return "\n".join(f"{name}=={version}" for name, version in lowest().items())


def lowest() -> dict[str, str]:
    """Return the lowest version of each dependency that is allowed."""
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    return dict(re.match(r"([\w.-]+)(?:\[.*\])?>=([\w.]+)", name).groups() for name in wanted)


def outcome(command: list[str], path: str) -> str:
    """Run pytest, and return its last line without the time."""
    program, *arguments = command
    options = ["-q", "-p", "no:xdist", "-p", "no:cacheprovider", "--no-header"]
    options += ["-W", "ignore::pytest.PytestUnraisableExceptionWarning"]  # sockets that pyspark 4.1 leaves open
    done = run([program, "-m", "pytest", *options, *arguments], PYTHONPATH=path)
    lines = [line for line in done.stdout.splitlines() if line.strip()] or [done.stderr.strip()[-80:]]
    for line in lines:
        if line.startswith(("FAILED", "ERROR")):
            sys.stdout.write(f"  {line[:160]}\n")
    if done.returncode not in {0, 1}:  # pytest's own codes of tests that passed or failed
        return f"ended with {done.returncode}: {lines[-1][:80]}"
    counts = re.findall(r"\d+ (?:passed|failed|skipped|errors?)\b", lines[-1])
    if counts:
        return ", ".join(counts)
    dots = "".join(re.findall(r"^([.FEsxX]+)(?: +\[ *\d+%\])?$", done.stdout, re.MULTILINE))
    names = {".": "passed", "F": "failed", "E": "errors", "s": "skipped"}
    return ", ".join(f"{dots.count(sign)} {name}" for sign, name in names.items() if sign in dots) or lines[-1][:80]


def run(command: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program in the checkout."""
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )


def read_rows() -> list[list[str]]:
    """Return the rows of the table, as cells."""
    lines = PAGE.read_text().partition(BEGIN)[2].partition(END)[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")][2:]


def add(rows: dict[str, list[str]], name: str, version: str, result: str) -> None:
    """Put a row into the table, and write the page."""
    today = datetime.now(UTC).date().isoformat()
    rows[name] = [name, version, result, today]
    sys.stdout.write(f"{name} {version}: {result}\n")
    head = ["| with | version | tests | date |", "|---|---|---|---|"]
    table = "\n".join([*head, *(f"| {' | '.join(row)} |" for row in rows.values())])
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n\n{table}\n\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main(sys.argv[1:])
