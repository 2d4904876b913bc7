"""Folders that cannot be written, files and folders that cannot be read: an error that names them, and nothing changed.

Permissions bind everybody but root, so the work is done by a process that has given up root's rights.
"""

import ctypes
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import DatasetAlreadyExistsError

_CAPABILITIES_V3 = 0x20080522
ROWS = pa.table({"a": range(100)})


def give_up_rights():
    """Let permissions bind this process and what it starts, whoever runs it."""
    header, none = (ctypes.c_uint32 * 2)(_CAPABILITIES_V3, 0), (ctypes.c_uint32 * 6)()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.capset(header, none):
        raise OSError(ctypes.get_errno(), "cannot give up rights")


@pytest.fixture(scope="module")
def pool():
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, initializer=give_up_rights) as pool:
        yield pool


@pytest.fixture
def table(tmp_path):
    """Version 1 has a hundred rows, version 2 one less."""
    dataset = lance_core.write_dataset(ROWS, tmp_path / "t")
    dataset.delete("a = 1")
    return Path(dataset.uri)


def read(uri):
    return lance_core.dataset(uri).to_table().num_rows


def create(uri):
    lance_core.write_dataset(ROWS, uri)


def append(uri):
    lance_core.write_dataset(ROWS, uri, mode="append")


def overwrite(uri):
    lance_core.write_dataset(ROWS, uri, mode="overwrite")


def delete(uri):
    lance_core.dataset(uri).delete("a = 2")


def clean_up(uri):
    lance_core.dataset(uri).cleanup_old_versions(older_than=timedelta(0))


def tag(uri):
    lance_core.dataset(uri).tags.create("t", 1)


def attempt(work, uri):
    """What it was refused: the message; None if it went through."""
    try:
        work(uri)
    except (PermissionError, DatasetAlreadyExistsError) as error:
        return str(error)
    return None


READ_ONLY, UNREADABLE = 0o555, 0o000
CASES = [
    ("_versions", READ_ONLY, [append, overwrite, delete, clean_up]),
    ("_transactions", READ_ONLY, [append, overwrite, delete]),
    ("data", READ_ONLY, [append, overwrite]),
    ("_deletions", READ_ONLY, [delete]),
    ("_refs", READ_ONLY, [tag]),
    ("_versions", UNREADABLE, [read, create, append, overwrite, delete, clean_up, tag]),
    ("data", UNREADABLE, [read, append, overwrite, delete]),
    ("_deletions", UNREADABLE, [read, delete]),
    ("_versions/*.manifest", UNREADABLE, [read, append, overwrite, delete, clean_up, tag]),
    ("data/*", UNREADABLE, [read, delete]),
    ("_deletions/*", UNREADABLE, [read, delete]),
]


@pytest.mark.parametrize(("what", "mode", "refused"), CASES, ids=[f"{what} {mode:o}" for what, mode, _ in CASES])
def test_what_may_not_be_touched_is_named(pool, table, what, mode, refused):
    (table / "_refs").mkdir()
    before = {path: path.read_bytes() for path in table.rglob("*") if path.is_file()}
    for path in table.glob(what):
        path.chmod(mode)
    messages = {work: pool.submit(attempt, work, str(table)).result() for work in refused}
    for path in table.glob(what):
        path.chmod(0o755)
    for work, message in messages.items():
        assert message is not None, work
        assert what.partition("/")[0] in message, work
    after = {path: path.read_bytes() for path in table.rglob("*") if path.is_file()}
    assert after == before
    assert read(table) == 99


def test_a_folder_that_cannot_be_read_is_not_an_empty_one(pool, table):
    """Nobody may begin a second line of versions in it."""
    (table / "_versions").chmod(0o333)
    messages = [pool.submit(attempt, work, str(table)).result() for work in (create, clean_up)]
    (table / "_versions").chmod(0o755)
    assert all(message is not None for message in messages)
    assert [one["version"] for one in lance_core.dataset(table).versions()] == [1, 2]


def test_who_may_only_read_can_read(pool, table):
    for folder, _, files in os.walk(table):
        Path(folder).chmod(READ_ONLY)
        for file in files:
            (Path(folder) / file).chmod(0o444)
    assert pool.submit(read, str(table)).result() == 99
    assert pool.submit(attempt, append, str(table)).result() is not None
    for folder, _, _ in os.walk(table):
        Path(folder).chmod(0o755)
