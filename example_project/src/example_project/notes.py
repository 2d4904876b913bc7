"""A program that knows nothing of Dagster: it adds a note about a route to a Lance table.

`python -m example_project.notes EWR LAX "New terminal"`; Dagster learns of it through the sensor in `defs/route_notes`.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime

import pyarrow as pa

import lance_core
from example_project.tables import ROOT

URI = f"{ROOT}/route_notes.lance"
SCHEMA = pa.schema([("origin", "string"), ("dest", "string"), ("note", "string"), ("at", pa.timestamp("us", "UTC"))])


def add_note(origin: str, dest: str, note: str) -> int:
    """Append one row; returns the version made."""
    row = {"origin": origin, "dest": dest, "note": note, "at": datetime.now(UTC)}
    return lance_core.write_dataset(pa.Table.from_pylist([row], SCHEMA), URI, mode="append").version


if __name__ == "__main__":
    print(add_note(*sys.argv[1:4]))
