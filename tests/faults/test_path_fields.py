"""Every text of every message: is it a place, a name, or neither? None of them leads readers out of the table.

A field that is new in the protobuf files fails `test_every_field_has_a_decision` until it has one. docs/security.md
tells users the same.
"""

import importlib
import json
import os
import pkgutil
import socket
import struct
from contextlib import suppress

import pyarrow as pa
import pytest

import lance_core
import lance_core._proto as messages
from lance_core._proto import table_pb2, transaction_pb2
from lance_core.errors import LanceError, UntrustedPlaceError
from lance_core.format.table.manifest import encode_manifest_pieces
from lance_core.format.table.paths import ManifestNaming, manifest_path
from lance_core.format.table.transaction import decode_transaction
from lance_core.store import trust
from lance_core.store.local import LocalReader, LocalStore

IS_DEEP = os.environ.get("LANCE_TESTS") == "deep"
ADDRESS = "an address: goes through PlaceSettings.resolve"
NAME = "a name in a folder of the table: one path segment, or refused"
BELOW = "a path below the table's folder: each part is one path segment, or refused"
BRANCH = "the name of a branch: a folder below tree/, checked by is_branch_name"
TEXT = "text: never part of a path"
BYTES = "bytes: decoded, never part of a path"
RECORD = "told to the user, never opened"

DECISIONS = {
    "lance.table.BasePath.path": ADDRESS,
    "lance.table.BasePath.name": BRANCH,
    "lance.table.DataFile.path": NAME,
    "lance.table.ExternalFile.path": BELOW,
    "lance.table.IndexFile.path": RECORD,
    "lance.table.UUID.uuid": NAME,
    "lance.table.Manifest.transaction_file": NAME,
    "lance.table.Manifest.branch": BRANCH,
    "lance.table.Transaction.uuid": NAME,
    "lance.table.Transaction.Clone.ref_path": RECORD,
    "lance.table.Transaction.Clone.ref_name": RECORD,
    "lance.table.Transaction.Clone.branch_name": RECORD,
    **dict.fromkeys(
        (
            "lance.encodings.Compression.scheme",
            "lance.file.Field.name",
            "lance.file.Field.logical_type",
            "lance.file.Field.extension_name",
            *(f"lance.table.WriterVersion.{part}" for part in ("library", "version", "prerelease", "build_metadata")),
            "lance.table.DataStorageFormat.file_format",
            "lance.table.DataStorageFormat.version",
            "lance.table.Manifest.tag",
            "lance.table.Clustering.provider",
            "lance.table.IndexMetadata.name",
            "lance.index.pb.JsonIndexDetails.path",
            "lance.table.Transaction.tag",
            "lance.table.Transaction.Delete.predicate",
            "lance.table.Transaction.UpdateMapEntry.key",
            "lance.table.Transaction.UpdateMapEntry.value",
            "lance.table.Transaction.UpdateConfig.delete_keys",
        ),
        TEXT,
    ),
    **{
        f"lance.{entry}.{part}": TEXT
        for entry in (
            "file.Schema.MetadataEntry",
            "file.Field.MetadataEntry",
            "table.Manifest.SchemaMetadataEntry",
            "table.Manifest.ConfigEntry",
            "table.Manifest.TableMetadataEntry",
            "table.DataFragment.MetadataEntry",
            "table.IndexMetadata.MetadataEntry",
            "table.Transaction.TransactionPropertiesEntry",
            "table.Transaction.Overwrite.SchemaMetadataEntry",
            "table.Transaction.Overwrite.ConfigUpsertValuesEntry",
            "table.Transaction.Merge.SchemaMetadataEntry",
            "table.Transaction.UpdateConfig.FieldMetadataUpdate.MetadataEntry",
            "table.Transaction.UpdateConfig.UpsertValuesEntry",
            "table.Transaction.UpdateConfig.SchemaMetadataEntry",
            "index.pb.VectorIndexDetails.RuntimeHintsEntry",
        )
        for part in ("key", "value")
    },
    **dict.fromkeys(
        (
            "lance.encodings.Fsst.symbol_table",
            "lance.encodings21.ConstantLayout.inline_value",
            "lance.encodings21.Constant.value",
            "lance.encodings21.Fsst.symbol_table",
            "lance.encodings23.ConstantValues.scalar",
            "lance.file.v2.DirectEncoding.encoding",
            "lance.table.U64Segment.RangeWithBitmap.bitmap",
            "lance.table.EncodedU64Array.U16Array.offsets",
            "lance.table.EncodedU64Array.U32Array.offsets",
            "lance.table.EncodedU64Array.U64Array.values",
            "lance.table.Manifest.fragments",
            "lance.table.DataFragment.inline_row_ids",
            "lance.table.DataFragment.inline_last_updated_at_versions",
            "lance.table.DataFragment.inline_created_at_versions",
            "lance.table.FragmentReuseIndexDetails.Group.changed_row_addrs",
            "lance.index.pb.Tensor.data",
            "lance.table.DataOverlayFile.shared_offset_bitmap",
            "lance.table.DataOverlayFile.FieldCoverage.offset_bitmaps",
            "lance.table.IndexMetadata.fragment_bitmap",
            "lance.table.Transaction.KeyExistenceFilter.BloomFilter.bitmap",
            "lance.table.Transaction.Update.UpdatedFragmentOffsetBitmapsEntry.value",
        ),
        BYTES,
    ),
}
"""What each text in a table's messages is."""

HOSTILE = (
    "{victim}",
    "file://{victim}",
    "../victim",
    "../../victim/x",
    "%2e%2e%2fvictim",
    "s3://other-bucket/x",
    "http://169.254.169.254/latest/meta-data",
    "zip::file://{victim}",
)
STABLE_ROW_IDS = 2


def texts(descriptor):
    """Full names of the fields of a message type, and of those inside of it, that hold text or bytes."""
    for field in descriptor.fields:
        if field.type in (field.TYPE_STRING, field.TYPE_BYTES):
            yield field.full_name
    for nested in descriptor.nested_types:
        yield from texts(nested)


def test_every_field_has_a_decision():
    modules = [
        importlib.import_module(f"{messages.__name__}.{one.name}") for one in pkgutil.iter_modules(messages.__path__)
    ]
    found = {
        name
        for module in modules
        for descriptor in module.DESCRIPTOR.message_types_by_name.values()
        for name in texts(descriptor)
    }
    assert found == set(DECISIONS), "decide what a new text is, here and in docs/security.md"


# ---------------------------------------------------------------------------- texts in manifests


@pytest.fixture
def table(tmp_path, monkeypatch):
    """A table that uses all that a manifest can say, a victim beside it, and what is opened meanwhile."""
    root, victim = tmp_path / "home" / "t", tmp_path / "home" / "victim"
    victim.mkdir(parents=True)
    (victim / "x").write_bytes(b"secret")
    dataset = lance_core.write_dataset(pa.table({"x": [1, 2, 3, 4]}), root)
    dataset.create_scalar_index("x", "ZONEMAP")
    dataset.delete("x = 1")
    dataset.tags.create("tag", dataset.version)
    dataset.create_branch("branch")
    opened = []
    real_path, real_open, real_reader = LocalStore._path, trust.open_store, LocalReader.__init__

    def path(self, name):
        opened.append(real_path(self, name))
        return opened[-1]

    def reader(self, name):
        opened.append(name)
        real_reader(self, name)

    def open_store(text, options):
        opened.append(text)
        return real_open(text, options)

    def connect(_, address):
        opened.append(str(address))
        raise OSError(str(address))

    monkeypatch.setattr(LocalStore, "_path", path)
    monkeypatch.setattr(LocalReader, "__init__", reader)
    monkeypatch.setattr(trust, "open_store", open_store)
    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setenv("LANCE_CORE_BASE_PATHS", "")
    return root, victim, opened


def stays_inside(root, victim, opened):
    base = os.path.realpath(root) + os.sep
    assert opened
    for path in opened:
        assert os.path.realpath(path.replace("\0", "?")).startswith(base), path
    assert (victim / "x").read_bytes() == b"secret"


def use(root):
    """Do with a table all that looks at what its files say."""
    dataset = lance_core.dataset(root)
    for work in (
        lambda: dataset.to_table(filter="x > 1"),
        lambda: dataset.take([0]),
        dataset.versions,
        dataset.list_indices,
        dataset.describe_indices,
        lambda: dataset.get_transactions(9),
        lambda: dataset.read_transaction(dataset.version),
        dataset.tags.list,
        dataset.branches.list,
        lambda: dataset.verify(level="full"),
        lambda: lance_core.dataset(root, "tag").to_table(),
        lambda: lance_core.dataset(root, branch="branch").to_table(),
        lambda: lance_core.write_dataset(pa.table({"x": [5]}), dataset, mode="append"),
        lambda: dataset.delete("x = 3"),
        dataset.optimize.compact_files,
        dataset.cleanup_old_versions,
    ):
        with suppress(LanceError, OSError, ValueError, NotImplementedError):
            work()


def manifest_of(root):
    """The messages of the newest version: manifest, fragments, indices and transaction."""
    snapshot = lance_core.dataset(root).snapshot
    data = b"".join(encode_manifest_pieces(snapshot.manifest))
    (at,) = struct.unpack_from("<q", data, len(data) - 16)
    (size,) = struct.unpack_from("<I", data, at)
    pb = table_pb2.Manifest.FromString(data[at + 4 : at + 4 + size])

    def section(kind, start):
        (size,) = struct.unpack_from("<I", data, start)
        return kind.FromString(data[start + 4 : start + 4 + size])

    indices = section(table_pb2.IndexSection, pb.index_section)
    transaction = section(transaction_pb2.Transaction, pb.transaction_section)
    fragments = [table_pb2.DataFragment.FromString(one) for one in pb.fragments]
    pb.base_paths.append(
        table_pb2.BasePath(id=7, name="branch", path=str(root / "tree" / "branch"), is_dataset_root=True)
    )
    pb.branch, pb.tag = "branch", "tag"
    pb.transaction_file = f"1-{transaction.uuid}.txn"
    return pb, fragments, indices, transaction


def put(root, pb, fragments, indices, transaction):
    """Write the messages as the next version."""
    pb.version += 1
    data = bytes(16)

    def add(message):
        nonlocal data
        start, encoded = len(data), message.SerializeToString()
        data += struct.pack("<I", len(encoded)) + encoded
        return start

    pb.index_section, pb.transaction_section = add(indices), add(transaction)
    del pb.fragments[:]
    pb.fragments.extend(one.SerializeToString() for one in fragments)
    at = add(pb)
    path = root / manifest_path(pb.version, ManifestNaming.V2)
    path.write_bytes(data + struct.pack("<qHH4s", at, 0, 2, b"LANC"))


@pytest.mark.filterwarnings("ignore::lance_core.errors.IndexCoverageWarning")
def test_the_messages_are_those_that_are_read(table):
    """Without a hostile text, the version that the tests write is read and changed; with a base path, refused."""
    root, _, opened = table
    pb, fragments, indices, transaction = manifest_of(root)
    version = pb.version + 1
    put(root, pb, fragments, indices, transaction)
    dataset = lance_core.dataset(root)
    assert (dataset.version, dataset.to_table(filter="x > 2")["x"].to_pylist()) == (version, [3, 4])
    assert dataset.read_transaction(version).uuid == transaction.uuid
    use(root)
    assert lance_core.dataset(root).version > version
    pb.version -= 1
    fragments[0].files[0].base_id = 7
    pb.base_paths[0].path = str(root.parent / "victim")
    put(root, pb, fragments, indices, transaction)
    opened.clear()
    with pytest.raises(UntrustedPlaceError, match="victim"):
        lance_core.dataset(root, version).to_table()
    assert any("_versions" in path for path in opened)


def planted(message, text):
    """Put a text into each field of a message and of those inside of it; the names of the fields, one at a time.

    The message is as before when the next one is asked for.
    """
    for field in message.DESCRIPTOR.fields:
        values = getattr(message, field.name)
        if field.type == field.TYPE_STRING and not field.is_repeated:
            had = message.HasField(field.name) if field.has_presence else True
            setattr(message, field.name, text)
            yield field.full_name
            setattr(message, field.name, values) if had else message.ClearField(field.name)
        elif field.type == field.TYPE_STRING:
            values.append(text)
            yield field.full_name
            values.pop()
        elif field.type == field.TYPE_MESSAGE and field.message_type.GetOptions().map_entry:
            value = field.message_type.fields_by_name["value"]
            if value.type in (value.TYPE_STRING, value.TYPE_BYTES):
                values[text] = text if value.type == value.TYPE_STRING else text.encode()
                yield f"{field.message_type.full_name}.value"
                del values[text]
        elif field.type == field.TYPE_MESSAGE and field.is_repeated:
            for one in values[:2]:
                yield from planted(one, text)
        elif field.type == field.TYPE_MESSAGE and message.HasField(field.name):
            yield from planted(values, text)


@pytest.mark.filterwarnings("ignore::lance_core.errors.IndexCoverageWarning")
@pytest.mark.parametrize("turn", range(len(HOSTILE)))
@pytest.mark.parametrize("kind", ["own", "based", "external"])
def test_no_text_of_a_manifest_leads_out_of_the_table(table, turn, kind):
    """All hostile texts in fields that may lead to files; one of them in each other field, and all in deep."""
    root, victim, opened = table
    text = HOSTILE[turn].format(victim=victim)
    pb, fragments, indices, transaction = parts = manifest_of(root)
    if kind == "based":
        fragments[0].files[0].base_id = fragments[0].deletion_file.base_id = indices.indices[0].base_id = 7
    if kind == "external":
        pb.reader_feature_flags |= STABLE_ROW_IDS
        pb.writer_feature_flags |= STABLE_ROW_IDS
        fragments[0].external_row_ids.path = "data/row_ids"
        fragments[0].external_row_ids.size = 4
    versions = sorted(path.name for path in (root / "_versions").iterdir())
    dangerous = {name for name, decision in DECISIONS.items() if decision in (ADDRESS, NAME, BELOW, BRANCH)}
    dangerous -= {"lance.table.UUID.uuid"}  # 16 bytes, which are written as hexadecimal digits
    tried = set()
    for message in (pb, *fragments, indices, transaction):
        for name in planted(message, text):
            is_new, number = name not in tried, len(tried)
            tried.add(name)
            if name not in dangerous and not IS_DEEP and not (is_new and number % len(HOSTILE) == turn):
                continue
            version = pb.version
            put(root, *parts)
            opened.clear()
            with suppress(LanceError, OSError, ValueError):
                use(root)
            stays_inside(root, victim, opened)
            pb.version = version
            for path in (root / "_versions").iterdir():
                if path.name not in versions:
                    path.unlink()
    assert dangerous - tried == (set() if kind == "external" else {"lance.table.ExternalFile.path"})
    assert len(tried) > 20


# ---------------------------------------------------------------------------- transactions, tags and branches


def filled(descriptor, text, depth=0):
    """A message with a text wherever there can be one."""
    message = importlib.import_module("google.protobuf.message_factory").GetMessageClass(descriptor)()
    for field in descriptor.fields:
        if field.containing_oneof is not None and message.WhichOneof(field.containing_oneof.name):
            continue
        fill(message, field, text, depth)
    return message


def fill(message, field, text, depth):
    values = {field.TYPE_STRING: text, field.TYPE_BYTES: text.encode()}
    if field.type in values:
        value = values[field.type]
        getattr(message, field.name).append(value) if field.is_repeated else setattr(message, field.name, value)
    elif field.type == field.TYPE_MESSAGE and depth < 5:
        if field.message_type.GetOptions().map_entry:
            value = field.message_type.fields_by_name["value"]
            if value.type in values:
                getattr(message, field.name)[text if field.message_type.fields_by_name["key"].type == 9 else 1] = (
                    values[value.type]
                )
            return
        inner = filled(field.message_type, text, depth + 1)
        own = getattr(message, field.name)
        own.append(inner) if field.is_repeated else own.CopyFrom(inner)


OPERATIONS = [one.name for one in transaction_pb2.Transaction.DESCRIPTOR.oneofs_by_name["operation"].fields]


@pytest.mark.filterwarnings("ignore::lance_core.errors.IndexCoverageWarning")
@pytest.mark.parametrize("operation", OPERATIONS)
def test_no_text_of_a_transaction_leads_out_of_the_table(table, operation):
    root, victim, opened = table
    for text in (str(victim), "../../victim/x", "s3://other-bucket/x"):
        pb, fragments, indices, own = manifest_of(root)
        fields = transaction_pb2.Transaction.DESCRIPTOR.fields_by_name
        fill(own, fields[operation], text, 0)
        assert text.encode() in own.SerializeToString() or operation in {"restore", "reserve_fragments"}
        with suppress(LanceError):
            decode_transaction(own.SerializeToString())
        put(root, pb, fragments, indices, own)
        opened.clear()
        with suppress(LanceError, OSError, ValueError):
            use(root)
        stays_inside(root, victim, opened)
        (root / manifest_path(pb.version, ManifestNaming.V2)).unlink()


@pytest.mark.filterwarnings("ignore::lance_core.errors.IndexCoverageWarning")
@pytest.mark.parametrize("turn", range(len(HOSTILE)))
def test_no_text_of_a_tag_or_branch_leads_out_of_the_table(table, turn):
    """All hostile texts in what names a branch; one of them in each other value, and all in deep.

    Without the checksum, as pylance writes these files: it would tell that they were changed.
    """
    root, victim, opened = table
    text = HOSTILE[turn].format(victim=victim)
    names = {"branch", "parentBranch", "identifier"}
    tried = set()
    for path in (root / "_refs/tags/tag.json", root / "_refs/branches/branch.json"):
        original = path.read_text()
        content = {key: value for key, value in json.loads(original).items() if key != "checksum"}
        for number, key in enumerate(content):
            tried.add(key)
            if key not in names and not IS_DEEP and number % len(HOSTILE) != turn:
                continue
            path.write_text(json.dumps(content | {key: text}))
            opened.clear()
            with suppress(LanceError, OSError, ValueError):
                use(root)
            stays_inside(root, victim, opened)
            path.write_text(original)
    assert names <= tried


def test_extension_types_are_not_unpickled(tmp_path, monkeypatch):
    """Old pyarrow kept extension types as pickles in the metadata of fields."""
    monkeypatch.chdir(tmp_path)
    evil = b"cos\nsystem\n(S'touch ran'\ntR."
    metadata = {"ARROW:extension:name": b"arrow.py_extension_type", "ARROW:extension:metadata": evil}
    field = pa.field("x", pa.int64(), metadata=metadata)
    lance_core.write_dataset(pa.table({"x": [1]}, schema=pa.schema([field])), tmp_path / "t")
    with suppress(LanceError, ValueError, RuntimeError):
        assert lance_core.dataset(tmp_path / "t").to_table().num_rows == 1
    assert not (tmp_path / "ran").exists()
