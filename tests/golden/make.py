"""Make the golden files: ``python tests/golden/make.py``. Needs pylance; files that are there are never changed.

Each ``<version>/<family>.lance`` is a data file as pylance writes it, ``<family>.arrow`` what pylance reads from it.
"""

import sys
import tempfile
from pathlib import Path

import lance
import pyarrow as pa
from lance.file import LanceFileReader, LanceFileWriter

from lance_core.testing.types import SAMPLES, TypeSample

FOLDER = Path(__file__).parent / f"pylance-{lance.__version__}"
VERSIONS = ("0.1", "2.0", "2.1", "2.2")
NUM_ROWS = 60
NUM_ENCODED_ROWS = 1100  # more than one chunk


def encoded(name, kind, kinds=0, size=12, **metadata):
    keys = {f"lance-encoding:{key.replace('_', '-')}": value for key, value in metadata.items()}
    return TypeSample(name=name, type=kind, kinds=kinds, size=size, metadata=keys)


ENCODED = (
    *(encoded(f"int64 {codec}", pa.int64(), compression=codec) for codec in ("zstd", "lz4", "none")),
    *(encoded(f"string {codec}", pa.string(), compression=codec) for codec in ("zstd", "lz4", "none", "fsst")),
    *(encoded(f"long string {codec}", pa.string(), size=400, compression=codec) for codec in ("zstd", "lz4", "fsst")),
    encoded("float split", pa.float32(), compression="lz4", bss="on"),
    encoded("double split", pa.float64(), compression="zstd", bss="on"),
    encoded("zstd level", pa.string(), compression="zstd", compression_level="9"),
    encoded("few int64", pa.int64(), kinds=3),
    encoded("few strings", pa.string(), kinds=5),
    encoded("one string", pa.string(), kinds=1),
    encoded("one double", pa.float64(), kinds=1),
    *(
        encoded(f"{kind} {layout}", kind, structural_encoding=layout)
        for kind in (pa.int32(), pa.string(), pa.list_(pa.int16()), pa.list_(pa.string()))
        for layout in ("miniblock", "fullzip")
    ),
)
# pylance cannot read these in the company of others.
ALONE = {"empty struct": "empty_struct", "fixed_size_list<struct>": "vectors_of_structs"}


def heeds(version, sample):
    """True if a version can do what the sample asks for."""
    return version in ("2.1", "2.2") or (version == "2.0" and "lance-encoding:compression" in sample.metadata)


def family(sample):
    kind = sample.type
    if sample in ENCODED:
        return "encoded" if sample.size < 100 else "encoded_long"
    if sample.name in ALONE:
        return ALONE[sample.name]
    if pa.types.is_dictionary(kind):
        return "dictionaries"
    if pa.types.is_fixed_size_list(kind):
        return "vectors"
    if pa.types.is_nested(kind):
        return "nested"
    if "string" in sample.name or "binary" in sample.name or isinstance(kind, pa.BaseExtensionType):
        return "strings"
    return "numbers"


def write(table, version, path):
    if version == "0.1":
        with tempfile.TemporaryDirectory() as folder:
            dataset = lance.write_dataset(table, folder, data_storage_version="legacy")
            (file,) = (Path(folder) / "data").iterdir()
            path.write_bytes(file.read_bytes())
            return dataset.to_table()
    with LanceFileWriter(str(path), table.schema, version=version) as writer:
        writer.write_batch(table)
    return LanceFileReader(str(path)).read_all().to_table()


def columns(samples, version, scratch):
    """Those columns that pylance gives back as they were; it refuses others, or dies of them."""
    for sample in samples:
        for nulls in ("none", "some"):
            table = sample.table(NUM_ENCODED_ROWS if family(sample) == "encoded" else NUM_ROWS, nulls=nulls)
            try:
                came_back = write(table, version, scratch).equals(table)
            except BaseException as error:  # noqa: BLE001 a panic of pylance is no Exception
                sys.stderr.write(f"{version} {sample.name} {nulls}: {str(error).splitlines()[0][:100]}\n")
                continue
            if came_back:
                yield f"{sample.name}, nulls: {nulls}", table.schema.field(0), table.column(0)


def main():
    for version in VERSIONS:
        samples = [*SAMPLES, *(one for one in ENCODED if heeds(version, one))]
        folder = FOLDER / version
        folder.mkdir(parents=True, exist_ok=True)
        for name in sorted({family(sample) for sample in samples}):
            path = folder / f"{name}.lance"
            with tempfile.TemporaryDirectory() as scratch:
                mine = [sample for sample in samples if family(sample) == name]
                found = list(columns(mine, version, Path(scratch) / "x.lance"))
            if path.exists() or not found:
                continue
            fields = [field.with_name(title) for title, field, _ in found]
            table = pa.Table.from_arrays([column for _, _, column in found], schema=pa.schema(fields))
            read = write(table, version, path)
            options = pa.ipc.IpcWriteOptions(compression="zstd")
            with pa.ipc.new_file(folder / f"{name}.arrow", read.schema, options=options) as writer:
                writer.write_table(read)


if __name__ == "__main__":
    main()
