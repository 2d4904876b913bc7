"""Take one safeguard of what is read away at a time: a gate must notice each; see `lance_core.testing.mutations`."""

from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
from pyroaring import BitMap

import lance_core
from lance_core.errors import LanceError
from lance_core.format.table.paths import ManifestNaming, manifest_path
from lance_core.store.local import LocalStore
from lance_core.table.commit import commit
from lance_core.table.snapshot import Versions, open_snapshot
from lance_core.testing.actions import ACTIONS, read_state, rows_of
from lance_core.testing.mutations import always, base, mutated, no, toy
from lance_core.testing.tables import append

pytestmark = pytest.mark.filterwarnings("ignore::lance_core.errors.IndexCoverageWarning")


def wrong_name():
    """A manifest under the name of another version is not opened."""
    store = toy()
    commit(store, append(store, [10], read_version=1, uuid="a"))
    paths = [manifest_path(version, ManifestNaming.V2) for version in (2, 9)]
    store.put(paths[1], store.get(paths[0]))
    with pytest.raises(LanceError):
        open_snapshot(store, 9)


def flipped(folder, work=lambda _store: None, step=31):
    """A bit of a file of ours is changed: an error, never something else."""

    def gate():
        store = base().copied()
        work(store)
        (info,) = [*store.list(folder)][-1:]
        data = store.get(info.path)
        expected = read_state(open_snapshot(store)).plain()
        for bit in range(0, 8 * len(data), step):
            changed = bytearray(data)
            changed[bit >> 3] ^= 1 << (bit & 7)
            store.put(info.path, bytes(changed))
            with suppress(LanceError):
                assert read_state(open_snapshot(store)).plain() == expected

    return gate


def blob_file_flipped():
    field = lance_core.blob_field("b", inline_size_threshold=1)
    table = pa.table([lance_core.blob_array([b"bytes"])], schema=pa.schema([field]))
    with TemporaryDirectory() as folder:
        dataset = lance_core.write_dataset(table, folder, mode="overwrite")
        (path,) = Path(folder).rglob("*.blob")
        path.write_bytes(b"other")
        with pytest.raises(LanceError):
            dataset.read_blobs("b", indices=[0])


def delete_in(store):
    ACTIONS["delete"].run(store, 0)


def deletion_file_is_missing():
    store = base().copied()
    ACTIONS["delete"].run(store, 0)
    store.delete([info.path for info in store.list("_deletions")])
    with pytest.raises(LanceError):
        read_state(open_snapshot(store))


def hint_is_stale():
    with TemporaryDirectory() as folder:
        for key in (1, 2, 3):
            lance_core.write_dataset(rows_of([key], 0), folder, mode="append" if key > 1 else "overwrite")
        Path(folder, "_versions/latest_version_hint.json").write_text('{"version":2}')
        assert lance_core.dataset(folder).version == 3


def paths_stay_inside():
    with TemporaryDirectory() as folder:
        Path(folder, "secret").write_bytes(b"x")
        Path(folder, "t").mkdir()
        with pytest.raises(LanceError):
            LocalStore(f"{folder}/t").get("../secret")


def believed(_original):
    def hinted(store):
        with suppress(LanceError):
            number = int(store.get("_versions/latest_version_hint.json").split(b":")[1].rstrip(b"}"))
            return Versions(
                names=(manifest_path(number, ManifestNaming.V2).rpartition("/")[2],), naming=ManifestNaming.V2
            )
        return None

    return hinted


def no_deletions(original):
    def load(store, fragment):
        with suppress(LanceError):
            return original(store, fragment)
        return BitMap()

    return load


MUTATIONS = {
    "versions are not compared with names": (
        "lance_core.format.table.manifest._check_version",
        lambda _original: no,
        wrong_name,
    ),
    "sums of data files are not compared": (
        "lance_core.file.integrity.BlockChecks._check_block",
        lambda _original: no,
        flipped("data"),
    ),
    "sums of blob files are not compared": (
        "lance_core.format.file.blob_checksums.BlobSums.check",
        lambda _original: no,
        blob_file_flipped,
    ),
    "sums of manifests are not compared": (
        "lance_core.format.table.manifest.check_section",
        always(value=True),
        flipped("_versions"),
    ),
    "sums of deletion files are not compared": (
        "lance_core.format.table.deletion.check_section",
        always(value=True),
        flipped("_deletions", delete_in, step=8),
    ),
    "a missing deletion file is no deletions": (
        "lance_core.table.rebase.load_deletions",
        no_deletions,
        deletion_file_is_missing,
    ),
    "the hint is believed": ("lance_core.table.snapshot._hinted", believed, hint_is_stale),
    "paths may lead outside": ("lance_core.store.local.check_path", lambda _original: no, paths_stay_inside),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_gate_notices(name, monkeypatch):
    target, mutate, gate = MUTATIONS[name]
    gate()
    monkeypatch.setattr(*mutated(target, mutate))
    with pytest.raises((Exception, pytest.fail.Exception)):
        gate()


def test_there_are_enough():
    assert len(MUTATIONS) >= 8
