"""Which schemas name extension types: asked once for each schema, metadata and all."""

import pyarrow as pa

from lance_core.format.extensions import EXTENSION_NAME_KEY, names_extensions

NAMED = pa.field("a", pa.int64(), metadata={EXTENSION_NAME_KEY: "some.type"})
PLAIN = pa.field("a", pa.int64())


def test_schemas_that_differ_in_metadata_only_are_told_apart():
    for _ in range(2):
        assert not names_extensions(pa.schema([PLAIN]))
        assert names_extensions(pa.schema([NAMED]))
        assert not names_extensions(pa.schema([pa.field("s", pa.struct([PLAIN]))]))
        assert names_extensions(pa.schema([pa.field("s", pa.struct([NAMED]))]))
        assert names_extensions(pa.schema([pa.field("s", pa.list_(pa.struct([PLAIN, NAMED])))]))


def test_a_schema_is_asked_once(calls_of):
    schema = pa.schema([pa.field(f"c{number}", pa.int64()) for number in range(300)])
    assert not names_extensions(schema)
    assert calls_of(lambda: names_extensions(schema)) < 30
