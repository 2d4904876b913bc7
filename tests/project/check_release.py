"""Check what a release would upload: builds it, installs it into empty environments, and uses it.

    python tests/project/check_release.py            all environments
    python tests/project/check_release.py base ui    some of them

Each environment is empty but for the wheel and its extras, in the versions of ``requirements.lock``. Programs run in an
empty folder, so that nothing of the checkout is imported.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
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
    return numbers.filter(pa.compute.field("n") > 4)

assert dg.materialize([numbers, large], resources={"io_manager": LanceIOManager(root="lake")}).success
"""
IN_WHEEL = ("pyspark_lance.py", "lance_core/_proto/table_pb2.py", "lance_core/py.typed", "lance_dagster/py.typed")
IN_SOURCE = ("protos/", "tests/", "docs/", "README.md", "LICENSE", "CHANGELOG.md")


def readme(*numbers: int) -> str:
    """Return some of the README's Python blocks as one program."""
    blocks = BLOCK.findall((ROOT / "README.md").read_text())
    return "".join(blocks[number] for number in numbers)


ENVIRONMENTS: dict[str, tuple[str, list[list[str]]]] = {
    "base": ("", [["python", "-c", readme(0)], ["python", "-c", SMOKE], ["lance-core", "history", "cities.lance"]]),
    "ui": ("ui", [["dg", "list", "components", "--package", "lance_dagster"]]),
    "spark": ("spark,jre", [["python", "-c", readme(1, 2)]]),
}
"""Extras of each environment, and the commands that must succeed there."""


def main(names: list[str]) -> None:
    """Check a release; ends the process with a message if something is wrong."""
    with tempfile.TemporaryDirectory() as folder:
        dist = Path(folder, "dist")
        run([sys.executable, "-m", "build", "--outdir", str(dist)], cwd=ROOT)
        (wheel,), (source,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
        run([sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(source)], cwd=ROOT)
        missing = [name for name in IN_WHEEL if name not in zipfile.ZipFile(wheel).namelist()]
        with tarfile.open(source) as opened:
            members = [name.partition("/")[2] for name in opened.getnames()]
        missing += [name for name in IN_SOURCE if not any(member.startswith(name) for member in members)]
        if missing:
            sys.exit(f"missing: {', '.join(missing)}")
        for name in names or ENVIRONMENTS:
            use(name, wheel, Path(folder, name))
    sys.stdout.write("the release can be uploaded\n")


def use(name: str, wheel: Path, folder: Path) -> None:
    """Install the wheel with the extras of an environment, and run its commands."""
    extras, commands = ENVIRONMENTS[name]
    venv.create(folder / "venv", with_pip=True)
    scripts, work = folder / "venv" / "bin", folder / "work"
    work.mkdir()
    wanted = f"{wheel}[{extras}]" if extras else str(wheel)
    run([str(scripts / "pip"), "install", "--quiet", "--constraint", str(ROOT / "requirements.lock"), wanted], cwd=work)
    place = subprocess.check_output([scripts / "python", "-c", LOOK], cwd=work, text=True)
    assert Path(place).is_relative_to(folder), place
    for program, *words in commands:
        run([str(scripts / program), *words], cwd=work)
    sys.stdout.write(f"{name}: works\n")


def run(words: list[str], *, cwd: Path) -> None:
    """Run a command; what it printed is shown if it fails."""
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(words)[:200]}\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    main(sys.argv[1:])
