"""Ship lance_core to executors that do not have it."""

from __future__ import annotations

import marshal
import zipfile
from importlib.util import MAGIC_NUMBER, source_hash
from pathlib import Path
from typing import TYPE_CHECKING

import lance_core

if TYPE_CHECKING:
    import os

    from pyspark.sql import SparkSession

_EARLIEST = (1980, 1, 1, 0, 0, 0)  # a ZIP archive knows no time before that
_UNCHECKED = (1).to_bytes(4, "little")  # "this bytecode is not compared with its source", as PEP 552 writes it
_NO_REFERENCES = 2  # the newest version of marshal that writes the same bytes for the same code


def archive_lance_core(path: str | os.PathLike[str]) -> str:
    """Pack lance_core, which is pure Python, into an archive for ``spark-submit --py-files`` or ``spark.addPyFile``.

    The executors still need what it depends on: numpy, pyarrow, protobuf, pyroaring, fsspec and sqlglot, and greenlet
    for remote stores; isal and zstandard make it faster. Spark does not look for formats in archives, so ``register``
    is needed before ``format("lance")``. Beside each module stands its bytecode, so that workers need not compile it
    each time they start; a worker with another version of Python does. The same files always give the same archive.

    Args:
        path: Where to write it; the name must end in ``.zip``.

    Returns:
        The absolute path.
    """
    target = Path(path).absolute()
    package = Path(lance_core.__file__).parent
    sources = sorted(path for path in package.rglob("*") if path.suffix in {".py", ".java", ".typed"})
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for source in sources:
            name, content = source.relative_to(package.parent).as_posix(), source.read_bytes()
            _add(archive, name, content)
            if source.suffix == ".py":
                _add(archive, f"{name}c", _bytecode(name, content))
    return str(target)


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    entry = zipfile.ZipInfo(name, _EARLIEST)
    entry.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(entry, content)


def _bytecode(name: str, source: bytes) -> bytes:
    code = compile(source, name, "exec", dont_inherit=True)
    return MAGIC_NUMBER + _UNCHECKED + source_hash(source) + marshal.dumps(code, _NO_REFERENCES)


def ship_lance_core(spark: SparkSession, folder: str | os.PathLike[str]) -> str:
    """Pack lance_core and send it to the executors of a classic or Connect session.

    Do this before the session reads or writes a table: workers of Python that have imported another lance_core keep it
    for as long as they live.

    Args:
        spark: The session.
        folder: Where to keep the archive; it must stay as long as the session.

    Returns:
        Path of the archive.
    """
    archive = archive_lance_core(Path(folder) / "lance_core.zip")
    spark.addArtifacts(archive, pyfile=True)
    return archive
