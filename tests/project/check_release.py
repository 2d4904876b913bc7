"""Build what a release uploads into ``dist/`` and check it: install it into empty environments, and use it there.

    python tests/project/check_release.py            all environments but torch
    python tests/project/check_release.py base ui    some of them

What is committed is built twice, from the commit and from the source distribution, and must be the same bytes. Each
environment is empty but for the wheel and its extras, in the versions of ``requirements.lock``. Programs run in an
empty folder, so that nothing of the checkout is imported.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DIST = ROOT / "dist"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LOOK = "import lance_core, lance_dagster, pathlib; print(pathlib.Path(lance_core.__file__))"
SMOKE = """
import dagster as dg, pyarrow as pa
from lance_dagster import LanceIOManager

@dg.asset
def numbers() -> pa.Table:
    return pa.table({"n": range(10)})

@dg.asset
def large(numbers: pa.Table) -> pa.Table:
    return numbers.slice(5)

assert dg.materialize([numbers, large], resources={"io_manager": LanceIOManager(root="lake")}).success
"""
TORCH = """
import lance_core, pyarrow as pa
from lance_core.torch.data import LanceDataset

lance_core.write_dataset(pa.table({"n": range(10)}), "numbers.lance")
assert sum(batch["n"].sum().item() for batch in LanceDataset("numbers.lance", batch_size=4)) == 45
"""
IN_WHEEL = ("pyspark_lance.py", "lance_core/_proto/table_pb2.py", "lance_core/py.typed", "lance_dagster/py.typed")
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
HEAVY = {"torch"}
"""Extras of several GB: in an environment of their own, which is used if it is named."""


@dataclass(frozen=True, kw_only=True)
class Environment:
    """Extras that are installed, and the commands that must succeed there.

    Attributes:
        extras: Names of the extras.
        commands: Programs and their arguments.
        writes_sbom: The list of what is installed is a part of the release.
        runs_tests: The fast tests of the source distribution must pass.
    """

    extras: tuple[str, ...] = ()
    commands: tuple[tuple[str, ...], ...]
    writes_sbom: bool = False
    runs_tests: bool = False


def program(page: str, blocks: slice = slice(None)) -> tuple[str, ...]:
    """Return the command that runs Python blocks of a page."""
    return "python", "-c", "".join(BLOCK.findall((ROOT / page).read_text())[blocks])


COMPONENTS = ("dg", "list", "components", "--package", "lance_dagster")
ENVIRONMENTS = {
    "base": Environment(
        commands=(program("README.md"), ("python", "-c", SMOKE), ("lance-core", "history", "cities.lance"))
    ),
    "ui": Environment(extras=("ui", "pandas"), commands=(program("docs/start.md", slice(2)), COMPONENTS)),
    "spark": Environment(extras=("spark", "jre", "pandas"), commands=(program("docs/start.md"),)),
    "all": Environment(
        extras=tuple(name for name in EXTRAS if name not in HEAVY),
        commands=(("pip", "check"), ("python", "-c", SMOKE), program("docs/start.md"), COMPONENTS),
        writes_sbom=True,
        runs_tests=True,
    ),
    "torch": Environment(extras=("torch",), commands=(("python", "-c", TORCH),)),
}


def main(names: list[str]) -> None:
    """Check a release; ends the process with a message if something is wrong."""
    with tempfile.TemporaryDirectory() as folder:
        wheel, source = build(Path(folder))
        run(sys.executable, "-m", "twine", "check", "--strict", wheel, source, cwd=ROOT)
        for name in names or [name for name in ENVIRONMENTS if name not in HEAVY]:
            use(ENVIRONMENTS[name], wheel, unpacked=Path(folder, "unpacked"), folder=Path(folder, name))
            say(f"{name}: works")
    say(f"the release can be uploaded: {', '.join(sorted(path.name for path in DIST.iterdir()))}")


def build(folder: Path) -> tuple[Path, Path]:
    """Build the wheel and the source distribution of the commit; the same bytes come out of the latter."""
    shutil.rmtree(DIST, ignore_errors=True)
    run("git", "clone", "--quiet", ROOT, folder / "clone", cwd=ROOT)
    command = (sys.executable, "-m", "build", "--sdist", "--wheel")
    run(*command, "--outdir", DIST, folder / "clone", cwd=folder)
    (wheel,), (source,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    with tarfile.open(source) as opened:
        opened.extractall(folder, filter="data")
    (folder / source.name.removesuffix(".tar.gz")).rename(folder / "unpacked")
    run(*command, "--outdir", folder / "again", folder / "unpacked", cwd=folder)
    for path in (wheel, source):
        if path.read_bytes() != (folder / "again" / path.name).read_bytes():
            sys.exit(f"{path.name}: two builds differ")
    missing = set(IN_WHEEL).difference(zipfile.ZipFile(wheel).namelist())
    if missing:
        sys.exit(f"missing in the wheel: {', '.join(sorted(missing))}")
    say(f"{wheel.name}: the same bytes from the commit and from the source distribution")
    return wheel, source


def use(environment: Environment, wheel: Path, *, unpacked: Path, folder: Path) -> None:
    """Install the wheel with the extras of an environment, and run its commands."""
    venv.create(folder / "venv", with_pip=True)
    scripts, work = folder / "venv" / "bin", folder / "work"
    work.mkdir()
    pip = (scripts / "python", "-m", "pip")
    run(*pip, "install", "--quiet", "--upgrade", "pip>=25.1", cwd=work)
    install = (*pip, "install", "--quiet", "--constraint", ROOT / "requirements.lock")
    extras = f"[{','.join(environment.extras)}]" if environment.extras else ""
    run(*install, f"{wheel}{extras}", cwd=work)
    imported = subprocess.check_output([scripts / "python", "-c", LOOK], cwd=work, text=True)
    assert Path(imported).is_relative_to(folder), imported
    if environment.writes_sbom:
        write_sbom(scripts / "python", wheel)
    for program, *arguments in environment.commands:
        run(scripts / program, *arguments, cwd=work)
    if environment.runs_tests:
        run(*install, "--group", f"{unpacked / 'pyproject.toml'}:test", cwd=work)
        run(scripts / "pytest", "-m", "not slow", "-n", "2", "tests/core", cwd=unpacked)


def write_sbom(python: Path, wheel: Path) -> None:
    """Write the bill of materials, in CycloneDX's JSON: what is installed, with licenses."""
    target = DIST / f"{'-'.join(wheel.name.split('-')[:2])}.cdx.json"
    tool = Path(sys.executable).with_name("cyclonedx-py")
    run(tool, "environment", "--output-reproducible", "--output-file", target, python, cwd=DIST)


def run(*command: str | Path, cwd: Path) -> None:
    """Run a command; what it printed is shown if it fails."""
    done = subprocess.run([*map(str, command)], cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))[:200]}\n{done.stdout}{done.stderr}")


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
