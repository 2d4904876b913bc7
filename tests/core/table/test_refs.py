from datetime import UTC, datetime

import pytest

from lance_core.errors import (
    CorruptDataError,
    InvalidInputError,
    RefAlreadyExistsError,
    RefNotFoundError,
    VersionNotFoundError,
)
from lance_core.format.table.paths import ManifestNaming, manifest_path
from lance_core.store.memory import MemoryStore
from lance_core.table.commit import commit
from lance_core.table.refs import (
    create_tag,
    delete_tag,
    get_tag,
    list_tags,
    list_tags_strictly,
    update_tag,
)
from lance_core.table.runtime import Runtime
from lance_core.testing.faulty_store import FaultyStore
from lance_core.testing.tables import append, create

EARLY, LATE = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 2, 2, tzinfo=UTC)


@pytest.fixture
def store():
    store = MemoryStore()
    commit(store, create(store, range(10)))
    commit(store, append(store, [10], read_version=1, uuid="a"))
    return store


def test_life_of_a_tag(store):
    tag = create_tag(store, "v1", 1, runtime=Runtime(now=lambda: EARLY))
    size = len(store.get(manifest_path(1, ManifestNaming.V2)))
    assert (tag.version, tag.manifest_size, tag.created_at, tag.updated_at) == (1, size, EARLY, EARLY)
    assert get_tag(store, "v1") == tag
    moved = update_tag(store, "v1", 2, runtime=Runtime(now=lambda: LATE))
    assert (moved.version, moved.created_at, moved.updated_at) == (2, EARLY, LATE)
    assert list_tags(store) == {"v1": moved}
    delete_tag(store, "v1")
    assert list_tags(store) == {}


def test_what_cannot_be(store):
    create_tag(store, "v1", 1)
    with pytest.raises(RefAlreadyExistsError):
        create_tag(store, "v1", 2)
    with pytest.raises(VersionNotFoundError):
        create_tag(store, "v9", 9)
    with pytest.raises(VersionNotFoundError):
        update_tag(store, "v1", 9)
    with pytest.raises(InvalidInputError):
        create_tag(store, "../v1", 1)
    for call in (get_tag, delete_tag, lambda store, name: update_tag(store, name, 1)):
        with pytest.raises(RefNotFoundError):
            call(store, "none")
    assert [(name, tag.version) for name, tag in list_tags(store).items()] == [("v1", 1)]


def test_tag_of_a_version_that_is_cleaned_up_meanwhile(store):
    def clean(method, _path):
        if method == "put_if_absent":
            store.delete([manifest_path(1, ManifestNaming.V2)])

    with pytest.raises(VersionNotFoundError):
        create_tag(FaultyStore(inner=store, on_call=clean), "v1", 1)
    assert list_tags(store) == {}


def test_one_bad_file_does_not_hide_the_others(store):
    create_tag(store, "good", 1)
    store.put("_refs/tags/bad.json", b"{")
    store.put("_refs/tags/notes.txt", b"")
    assert list(list_tags(store)) == ["good"]
    with pytest.raises(CorruptDataError):
        list_tags_strictly(store)


def test_names_of_other_writers(store):
    store.put("_refs/tags/%C3%BC.json", b'{"version": 1, "manifestSize": 5}')
    assert get_tag(store, "ü").version == 1
    assert list(list_tags(store)) == ["ü"]
