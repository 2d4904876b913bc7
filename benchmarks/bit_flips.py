"""What becomes of a table when one bit of a file is flipped, beside pylance.

    python benchmarks/bit_flips.py                   200 flips for each kind of file, about two minutes
    python benchmarks/bit_flips.py --flips 3000      closer figures

Each library reads a table that it wrote itself, with integers, floats, texts, lists and vectors. `same` are flips that
change nothing of what is read, `error` are those that a reader notices, `wrong` those that lead to other values without
a word, and `crash` are panics and dead processes. Readers run in processes of their own.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection

TIME_LIMIT_S = 20
VERSIONS = ("2.0", "2.1", "2.2")
KINDS = [*(f"data {version}" for version in VERSIONS), "manifest", "deletion arrow", "deletion bin"]


def make(rows: int) -> pa.Table:
    """The table."""
    rng = np.random.default_rng(5)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(rng.random(rows * 16), pa.float32()), 16)
    lists = pa.ListArray.from_arrays(np.arange(rows + 1, dtype=np.int32) * 2, rng.integers(0, 99, rows * 2))
    return pa.table(
        {
            "id": range(rows),
            "number": rng.random(rows),
            "text": [f"text {rng.integers(0, 9999)}" for _ in range(rows)],
            "list": lists,
            "vector": vectors,
        }
    )


def write(library: Any, kind: str, path: Path) -> Path:
    """Write a table; the file to damage."""
    rows = {"data": 400, "manifest": 400, "deletion arrow": 400, "deletion bin": 8000}
    version = kind.split()[1] if kind.startswith("data") else "2.2"
    number = rows["data" if kind.startswith("data") else kind]
    library.write_dataset(make(number), str(path), data_storage_version=version)
    folder = "data"
    if kind.startswith("deletion"):
        library.dataset(str(path)).delete("id % 3 > 0" if kind.endswith("bin") else "id % 40 = 0")
        folder = "_deletions"
    return min((path / ("_versions" if kind == "manifest" else folder)).glob("*.*e*" if folder == "data" else "*"))


def serve(name: str, path: str, connection: Connection) -> None:
    """Read the table whenever asked to."""
    library = __import__(name)
    expected = None
    while True:
        connection.recv()
        try:
            found = library.dataset(path).to_table()
        except Exception:  # noqa: BLE001 every error counts
            connection.send("error")
            continue
        except BaseException:  # noqa: BLE001 panics of the native library
            connection.send("crash")
            continue
        if expected is None:
            expected = found
        connection.send("same" if found == expected else "wrong")


class Reader:
    """A process that reads; begun again when it died or hangs."""

    def __init__(self, name: str, path: Path) -> None:
        self._arguments = (name, str(path))
        self._context = multiprocessing.get_context("spawn")
        self._process: Any = None

    def start(self) -> None:
        """Begin, with the table as it should be."""
        self._connection, theirs = self._context.Pipe()
        self._process = self._context.Process(target=serve, args=(*self._arguments, theirs), daemon=True)
        self._process.start()
        theirs.close()
        self._connection.send(None)
        self._connection.recv()

    def ask(self) -> str:
        """What comes of reading."""
        try:
            self._connection.send(None)
            if self._connection.poll(TIME_LIMIT_S):
                return self._connection.recv()
        except (EOFError, OSError):
            pass
        return "crash"

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.join()


def flips(data: bytes, number: int) -> Iterator[bytes]:
    """The file with one bit flipped."""
    for bit in random.Random(7).sample(range(8 * len(data)), min(number, 8 * len(data))):
        changed = bytearray(data)
        changed[bit >> 3] ^= 1 << (bit & 7)
        yield bytes(changed)


def measure(name: str, kind: str, number: int) -> Counter[str]:
    """Outcomes of a library."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.lance"
        file = write(__import__(name), kind, path)
        data = file.read_bytes()
        reader, found = Reader(name, path), Counter[str]()
        reader.start()
        for changed in flips(data, number):
            file.write_bytes(changed)
            outcome = reader.ask()
            found[outcome] += 1
            if outcome == "crash":
                file.write_bytes(data)
                reader.stop()
                reader.start()
        reader.stop()
    return found


def main() -> None:
    """Print the shares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flips", type=int, default=200)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    arguments = parser.parse_args()
    for kind in arguments.kinds:
        for name in ("lance_core", "lance"):
            found = measure(name, kind, arguments.flips)
            total = sum(found.values())
            shares = "  ".join(f"{one} {found[one] / total:6.1%}" for one in ("same", "error", "wrong", "crash"))
            print(f"{kind:15} {'pylance' if name == 'lance' else name:11} {total:5} flips: {shares}", flush=True)


if __name__ == "__main__":
    main()
