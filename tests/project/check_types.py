"""Check the types of what changed since all types were clean, and of what imports it.

    python tests/project/check_types.py          quick, once all has been checked
    python tests/project/check_types.py --all    everything

Pyright keeps nothing from one run to the next. Signatures are annotated, so that a change can only make types wrong in
the module itself and in those that import it. A fresh checkout, another pyright, other packages or other settings check
everything.
"""

from __future__ import annotations

import ast
import hashlib
import json
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("lance_core", "lance_dagster")
OTHERS = ("tests/project/typed_calls.py",)
SETTINGS = "settings"
STAMP = ROOT / ".types_clean.json"
"""What was clean: the digest of each file, by its path."""


def sources() -> list[str]:
    """Return the paths of all files that are checked, as `tool.pyright` includes them."""
    files = (path.relative_to(ROOT).as_posix() for name in PACKAGES for path in (ROOT / name).rglob("*.py"))
    return sorted([*(path for path in files if not path.startswith("lance_core/_proto/")), *OTHERS])


def state() -> dict[str, str]:
    """Return the digest of each file, and of all that has a say in every file."""
    digests = {path: _digest((ROOT / path).read_bytes()) for path in sources()}
    packages = sorted(path.name for path in Path(sysconfig.get_path("purelib")).glob("*.dist-info"))
    protos = [path.read_bytes() for path in sorted((ROOT / "lance_core" / "_proto").glob("*.pyi"))]
    settings = b"".join([(ROOT / "pyproject.toml").read_bytes(), "\n".join(packages).encode(), *protos])
    return {SETTINGS: _digest(settings + sys.version.encode()), **digests}


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def importers() -> dict[str, set[str]]:
    """Return the files that import each module, by its dotted name."""
    found: dict[str, set[str]] = {}
    for path in sources():
        for node in ast.walk(ast.parse((ROOT / path).read_bytes())):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            for name in names:
                found.setdefault(name, set()).add(path)
    return found


def to_check(before: dict[str, str], now: dict[str, str], imported_by: dict[str, set[str]]) -> set[str]:
    """Return the files whose types may not be clean.

    Args:
        before: State in which all types were clean; empty if unknown.
        now: State to check.
        imported_by: Files that import each module.
    """
    files = now.keys() - {SETTINGS}
    if before.get(SETTINGS) != now[SETTINGS]:
        return set(files)
    changed = {path for path in before.keys() | files if before.get(path) != now.get(path)}
    others = {path for name in map(_module, changed) for path in imported_by.get(name, ())}
    return (changed | others) & files


def _module(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def main() -> int:
    """Run the command."""
    now = state()
    before = json.loads(STAMP.read_text()) if STAMP.exists() and "--all" not in sys.argv else {}
    files = to_check(before, now, importers())
    if files:
        everything = len(files) == len(now) - 1
        command = [sys.executable, "-m", "pyright", *([] if everything else sorted(files))]
        done = subprocess.run(command, cwd=ROOT, check=False)
        if done.returncode:
            return done.returncode
    else:
        sys.stdout.write("No types to check: nothing changed since all were clean.\n")
    STAMP.write_text(json.dumps(now))
    return 0


if __name__ == "__main__":
    sys.exit(main())
