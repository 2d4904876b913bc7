"""Every type, null pattern and file version, in both directions; what came of it is the table in docs/supported.md.

The rule, without exceptions but those named below: what pylance writes and reads back unchanged, we read as well and
write so that pylance reads it; what it cannot write, we refuse by name or write so that it can read it.
"""

import contextlib
import functools
import os
import re
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileReader as TheirReader
from lance.file import LanceFileWriter as TheirWriter

import lance_core
from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.file import LanceFileReader, LanceFileWriter
from lance_core.testing.types import NULLS, SAMPLES

VERSIONS = ("0.1", "2.0", "2.1", "2.2")
NUM_ROWS = 130
SUPPORTED = Path(__file__).parents[2] / "docs" / "supported.md"
FILED = [sample for sample in SAMPLES if sample.name != "json"]  # which pylance's tables know, not its bare files
LABELS = {
    r"u?int\d+": "integers",
    r"halffloat|float|double": "floats",
    r"bool": "booleans",
    r"(decimal\d+)\(.*": r"\1",
    r"date.*": "dates",
    r"time\d.*": "times",
    r"(timestamp|duration).*": r"\1s",
    r"fixed_size_list<bool>": "fixed size lists of booleans",
    r"(fixed_size_list|list)<struct.*": r"\1s of structs",
    r"map.*|list<map>": "maps",
    r"(fixed_size_list|large_list|list)<.*": r"\1s",
    r"struct.*": "structs",
    r"dictionary<.*string>": "dictionaries of strings",
    r"dictionary.*": "dictionaries of integers",
    r"([^,]*), .*": r"\1",
}
"""How samples are called in the table of docs/supported.md: the first pattern that fits."""


@pytest.fixture(autouse=True, scope="module")
def _quiet():
    """What pylance's threads say when they panic over a type is expected here."""
    saved = os.dup(2)
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
        yield
        os.dup2(saved, 2)
        os.close(saved)


@functools.cache
def table_of(name, nulls):
    (sample,) = (one for one in FILED if one.name == name)
    return sample.table(NUM_ROWS, nulls=nulls)


def theirs(table, version, path):
    """What pylance reads from the file it wrote; None if it cannot, or gives back something else."""
    with contextlib.suppress(BaseException):  # a panic is no Exception
        if version == "0.1":
            dataset = lance.write_dataset(table, path.with_suffix(".table"), data_storage_version="legacy")
            read = dataset.to_table()
            (file,) = path.with_suffix(".table").glob("data/*.lance")
            path.write_bytes(file.read_bytes())
        else:
            with TheirWriter(str(path), table.schema, version=version, data_cache_bytes=1) as writer:
                for batch in table.to_batches(max_chunksize=50):  # each becomes a page
                    writer.write_batch(batch)
            read = TheirReader(str(path)).read_all().to_table()
        if is_same(read, table):
            return read
    return None


def check_read(path, expected):
    """We read whole, in part and singly what pylance reads."""
    reader = LanceFileReader(path)
    for start, end in ((0, NUM_ROWS), (45, 105)):
        got = reader.read_range(start, end - start, batch_size=40).to_table()
        got.validate(full=True)
        assert got.schema.equals(expected.schema, check_metadata=True)
        assert is_same(got, expected.slice(start, end - start))
    rows = np.array([129, 3, 49, 50, 3])
    assert is_same(reader.take_rows(rows).to_table(), expected.take(rows))


def is_same(got, expected):
    """Whether values are equal; dictionaries may come with other items from page to page."""
    return got.equals(expected) or got.to_pylist() == expected.to_pylist()


def check_written(table, version, path):
    """Pylance reads whole, in part and singly what we wrote."""
    with LanceFileWriter(path, table.schema, version=version, data_cache_bytes=1000) as writer:
        for batch in table.to_batches(max_chunksize=70):
            writer.write_batch(batch)
    reader = TheirReader(str(path))
    assert is_same(reader.read_all().to_table(), table)
    assert is_same(reader.read_range(45, 60).to_table(), table.slice(45, 60))
    rows = [3, 49, 50, 129]
    assert is_same(reader.take_rows(rows).to_table(), rows_of(table, rows))
    assert is_same(LanceFileReader(path).read_all().to_table(), table)


def rows_of(table, rows):
    """As `take`, which knows fewer types."""
    return pa.concat_tables([table.slice(row, 1) for row in rows])


def outcome(sample, nulls, version, folder, *, read, is_known):
    """Whether a type can be read and written; fails where we do other than the rule says.

    Args:
        sample: The type.
        nulls: Pattern of nulls.
        version: Of the files.
        folder: Where pylance's file is, and ours goes.
        read: What pylance reads from its file; None if it cannot.
        is_known: Pylance can read and write the type without nulls.
    """
    table = table_of(sample.name, nulls)
    if read is not None:
        check_read(folder / f"{nulls}.lance", read)
    reads = "" if read is None else "r"
    if version == "0.1":
        return reads + outcome_of_table(sample, table, folder / f"{nulls}-ours")
    path = folder / f"{nulls}-ours.lance"
    if read is not None and is_known:
        check_written(table, version, path)
        return "rw"
    try:
        check_written(table, version, path)
        return f"{reads}w"
    except (InvalidInputError, UnsupportedError) as error:
        refusal = str(error)
    assert "'c" in refusal  # it names the column
    assert not path.exists()
    return reads


def outcome_of_table(sample, table, place):
    """As `outcome`, for version 0.1: pylance's file reader knows no such files, and tables need no known type."""
    table = pa.table({name: filled(table[name]) for name in table.column_names}, schema=table.schema)
    try:
        lance_core.write_dataset(table, place, data_storage_version="0.1", max_rows_per_group=50)
    except (InvalidInputError, UnsupportedError) as error:
        refusal = str(error)
        assert "'c" in refusal  # it names the column
        assert not list(place.rglob("*.lance"))
        return ""
    judge, rows = lance.dataset(place), [3, 49, 50, 129]
    expected = [str(row) for row in table.to_pylist()]  # NaN is not equal to itself
    for ours in (judge, lance_core.dataset(place)):
        assert [str(row) for row in ours.to_table().to_pylist()] == expected, sample.name
        assert [str(row) for row in ours.take(rows).to_pylist()] == [expected[row] for row in rows]
    return "w"


def filled(column):
    """Without empty values, which version 0.1 cannot tell from null."""
    if column.type not in (pa.binary(), pa.large_binary(), pa.binary_view()):
        return column
    return pa.array([None if one is None else b"x" + one for one in column.to_pylist()], column.type)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """What can be done with a sample in a file version, by pattern of nulls; found out once."""

    @functools.cache
    def find(name, version):
        (sample,) = (one for one in FILED if one.name == name)
        folder = tmp_path_factory.mktemp("matrix")
        reads = {nulls: theirs(table_of(name, nulls), version, folder / f"{nulls}.lance") for nulls in NULLS}
        is_known = reads["none"] is not None
        return tuple(
            outcome(sample, nulls, version, folder, read=read, is_known=is_known) for nulls, read in reads.items()
        )

    return find


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("sample", FILED, ids=lambda sample: sample.name)
def test_matrix(sample, version, outcomes):
    assert len(outcomes(sample.name, version)) == len(NULLS)


def in_short(name):
    for pattern, label in LABELS.items():
        if re.fullmatch(pattern, name):
            return re.sub(pattern, label, name, count=1).replace("_", " ")
    return name.replace("_", " ")


def in_words(found):
    """A cell of the table."""
    written = [nulls for nulls, one in zip(NULLS, found, strict=True) if "w" in one]
    if len(written) == len(NULLS):
        return "read, write"
    if "none" in written:
        return "read, write without nulls" if len(written) == 1 else "read, write without nulls in fields"
    return "read" if any(found) else "-"


def test_the_table_of_types_is_what_came_of_it(outcomes):
    rows = {}
    for sample in FILED:
        cells = tuple(in_words(outcomes(sample.name, version)) for version in VERSIONS)
        labels = rows.setdefault(cells, [])
        label = in_short(sample.name)
        if label not in labels:
            labels.append(label)
    lines = [f"| type | {' | '.join(VERSIONS)} |", "|---" * (1 + len(VERSIONS)) + "|"]
    lines += [f"| {', '.join(labels)} | {' | '.join(cells)} |" for cells, labels in rows.items()]
    expected = "\n".join(lines)
    assert expected in SUPPORTED.read_text(), f"the table of types in docs/supported.md should be\n{expected}"
