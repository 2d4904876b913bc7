"""Primary and clustering keys that the metadata of fields declares, as pylance understands it."""

import lance
import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import InvalidInputError

PRIMARY = "lance-schema:unenforced-primary-key"
PLACE = f"{PRIMARY}:position"
CLUSTERING = "lance-schema:unenforced-clustering-key"
CLUSTERING_PLACE = f"{CLUSTERING}:position"

LIBRARIES = (lance, lance_core)


def create(library, path, metadata=None):
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False, metadata=metadata),
            pa.field("b", pa.int64(), nullable=False),
            pa.field("c", pa.int64()),
        ]
    )
    library.write_dataset(pa.table({"id": [1, 2], "b": [3, 4], "c": [1, 1]}, schema=schema), path)
    return library.dataset(path)


def keys(path):
    """What the manifest says of each field."""
    return [
        (
            one.unenforced_primary_key,
            one.unenforced_primary_key_position,
            one.unenforced_clustering_key,
            one.unenforced_clustering_key_position,
            dict(one.metadata),
        )
        for one in lance_core.dataset(path).snapshot.manifest.schema.fields
    ]


@pytest.mark.parametrize(
    "metadata",
    [
        {PRIMARY: "TRUE"},
        {PRIMARY: "no"},
        {PLACE: "3"},
        {PLACE: "0"},
        {PLACE: "-1"},
        {PLACE: "x"},
        {PRIMARY: "true", PLACE: "0"},
        {CLUSTERING: "true"},
        {CLUSTERING_PLACE: "1"},
        {CLUSTERING_PLACE: "0"},
        {CLUSTERING: "true", CLUSTERING_PLACE: "2"},
    ],
)
def test_keys_of_new_tables(tmp_path, metadata):
    for library in LIBRARIES:
        create(library, tmp_path / library.__name__, metadata)
    assert keys(tmp_path / "lance") == keys(tmp_path / "lance_core")


@pytest.mark.parametrize(
    ("before", "field", "metadata", "replaces"),
    [
        # Declared for the first time.
        (None, "b", {PRIMARY: "true"}, False),
        (None, "b", {PLACE: "2"}, False),
        (None, "b", {PLACE: "0"}, False),
        (None, "b", {PRIMARY: "true", PLACE: "1"}, True),
        ({PRIMARY: "false"}, "id", {PRIMARY: "true"}, False),
        (None, "b", {CLUSTERING_PLACE: "1"}, False),
        (None, "b", {CLUSTERING_PLACE: "0"}, False),
        (None, "b", {CLUSTERING: "true"}, False),
        # Declared by values that mean nothing.
        (None, "b", {PRIMARY: "false"}, False),
        (None, "b", {PRIMARY: None}, False),
        (None, "b", {PLACE: "x"}, False),
        (None, "b", {CLUSTERING_PLACE: "-1"}, False),
        (None, "c", {PRIMARY: "true"}, False),
        # Changed and removed.
        ({PRIMARY: "true"}, "id", {PRIMARY: None}, False),
        ({PRIMARY: "true"}, "id", {PRIMARY: "true"}, False),
        ({PRIMARY: "true"}, "id", {"x": "y"}, True),
        ({PRIMARY: "true"}, "b", {PRIMARY: "true"}, False),
        ({PRIMARY: "true"}, "b", {PRIMARY: None}, False),
        ({PLACE: "1"}, "id", {PLACE: "2"}, False),
        ({CLUSTERING_PLACE: "1"}, "id", {CLUSTERING_PLACE: None}, False),
        ({CLUSTERING_PLACE: "1"}, "b", {CLUSTERING_PLACE: "2"}, False),
        ({CLUSTERING_PLACE: "1"}, "id", {"x": "y"}, True),
        # About something else.
        ({PRIMARY: "true"}, "id", {"x": "y"}, False),
        ({PRIMARY: "true"}, "b", {"x": "y"}, True),
        ({CLUSTERING: "true"}, "id", {CLUSTERING: None}, False),
        ({CLUSTERING_PLACE: "1"}, "id", {CLUSTERING: "true"}, False),
    ],
)
def test_keys_are_declared_once_by_the_metadata_of_fields(tmp_path, before, field, metadata, replaces):
    refused = []
    for library in LIBRARIES:
        dataset = create(library, tmp_path / library.__name__, before)
        try:
            dataset.update_field_metadata({field: metadata}, replace=replaces)
        except (OSError, InvalidInputError):
            refused.append(library)
            assert library.dataset(tmp_path / library.__name__).version == 1
    assert refused in ([], list(LIBRARIES)), refused
    assert keys(tmp_path / "lance") == keys(tmp_path / "lance_core")


def test_a_key_of_several_fields(tmp_path):
    for library in LIBRARIES:
        dataset = create(library, tmp_path / library.__name__)
        dataset.update_field_metadata({"id": {PLACE: "2"}, "b": {PLACE: "1"}})
    assert keys(tmp_path / "lance") == keys(tmp_path / "lance_core")
    rows = pa.table({"id": [2, 5], "b": [4, 4], "c": [9, 9]})
    rows = rows.cast(lance_core.dataset(tmp_path / "lance_core").schema)
    merge = lance_core.dataset(tmp_path / "lance_core").merge_insert()
    result = merge.when_matched_update_all().when_not_matched_insert_all().execute(rows)
    assert (result["num_updated_rows"], result["num_inserted_rows"]) == (1, 1)


def test_nullable_fields_are_no_keys(tmp_path):
    """pylance could not open the table."""
    nullable = pa.schema([pa.field("id", pa.int64(), metadata={PRIMARY: "true"})])
    inside = pa.schema(
        [pa.field("s", pa.struct([pa.field("id", pa.int64(), nullable=False, metadata={PRIMARY: "true"})]))]
    )
    for schema in (nullable, inside):
        for library in LIBRARIES:
            with pytest.raises((OSError, InvalidInputError), match=r"(?i)primary key"):
                library.write_dataset(schema.empty_table(), tmp_path / library.__name__)
    for library in LIBRARIES:
        dataset = create(library, tmp_path / library.__name__, {PRIMARY: "true"})
        with pytest.raises((OSError, InvalidInputError), match=r"(?i)primary key"):
            dataset.alter_columns({"path": "id", "nullable": True})


def test_keys_stay_when_something_else_changes(tmp_path):
    create(lance, tmp_path, {PRIMARY: "true", CLUSTERING_PLACE: "1"})
    before = keys(tmp_path)
    dataset = lance_core.dataset(tmp_path)
    dataset.update_config({"a": "b"})
    dataset.add_columns({"d": "b"})
    dataset.update_field_metadata({"c": {"x": "y"}})
    dataset.optimize.compact_files()
    assert keys(tmp_path)[:2] == before[:2]
    lance_core.write_dataset(pa.table({"z": [1]}), tmp_path, mode="overwrite")
    assert [one[0] for one in keys(tmp_path)] == [False]
