"""Look at a whole table: is everything there that its versions need, and does it fit together.

Memory holds one manifest, the names and sizes of the table's files, the fragments seen so far as records, and at most
one batch of rows. Nothing is written. The format has no checksums, so that values of other writers can be wrong without
anybody noticing; files of lance_core have some.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import field
from typing import TYPE_CHECKING

from pyroaring import BitMap64

from lance_core.common.frozen import mutable
from lance_core.errors import CorruptDataError, DatasetNotFoundError, InvalidInputError, LanceError
from lance_core.file.integrity import Checking, check_file
from lance_core.file.source import FileBytes
from lance_core.file.write.blob_checks import CheckedBlobFile, blob_sums
from lance_core.format.blobs import blob_file_path, has_blobs
from lance_core.format.schema import Schema
from lance_core.format.table.fragment import TOMBSTONE_FIELD_ID, decode_fragment
from lance_core.format.table.index_metadata import index_fields
from lance_core.format.table.manifest import manifest_files
from lance_core.format.table.paths import (
    BASE_PREFIX,
    BRANCHES_FOLDER,
    INDICES_FOLDER,
    TAGS_FOLDER,
    VERSIONS_FOLDER,
    base_prefix,
    data_file_path,
    deletion_file_path,
    transaction_path,
)
from lance_core.maintenance.cleanup_plan import SWEPT_FOLDERS, References
from lance_core.maintenance.verify_report import MAX_PROBLEMS, VerifyProblem, VerifyReport
from lance_core.scan.deletions import load_deletions
from lance_core.scan.fragment_reader import FragmentReader
from lance_core.scan.indexed import open_segment
from lance_core.scan.lineage import created_versions, has_spilled_lineage, row_ids, updated_versions
from lance_core.scan.open_files import OpenFiles
from lance_core.scan.plan import default_batch_size
from lance_core.table.branches import get_branch
from lance_core.table.completion import completed
from lance_core.table.locations import branch_of, object_sizes, with_bases
from lance_core.table.refs import get_tag, ref_names
from lance_core.table.snapshot import decode_version, find_versions, load_transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from lance_core.format.table.fragment import Fragment
    from lance_core.format.table.manifest import Manifest
    from lance_core.store.base import Store

LEVELS = ("quick", "full", "indices")
_TEMPORARY_PREFIX = ".tmp"


@mutable(kw_only=True)
class _Look:
    """State of one look at a table."""

    store: Store
    report: VerifyReport
    progress: Callable[[str, int, int], None]
    max_problems: int = MAX_PROBLEMS
    sizes: dict[str, int] = field(default_factory=dict[str, int])
    references: References = field(default_factory=References)
    seen: set[bytes] = field(default_factory=set[bytes])
    missing: set[str] = field(default_factory=set[str])

    @contextmanager
    def noting(
        self,
        kind: str,
        *,
        version: int | None = None,
        fragment_id: int | None = None,
        path: str | None = None,
        index_name: str | None = None,
    ) -> Generator[None]:
        """Note what goes wrong inside, and go on."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - garbage can lead to anything
            message = str(error) if isinstance(error, (LanceError, OSError)) else f"{type(error).__name__}: {error}"
            self.note(kind, message, version=version, fragment_id=fragment_id, path=path, index_name=index_name)

    def note(
        self,
        kind: str,
        message: str,
        *,
        version: int | None = None,
        fragment_id: int | None = None,
        path: str | None = None,
        index_name: str | None = None,
    ) -> None:
        problem = VerifyProblem(
            kind=kind, message=message, version=version, fragment_id=fragment_id, path=path, index_name=index_name
        )
        self.report.add(problem, max_problems=self.max_problems)


def verify_table(
    store: Store,
    *,
    level: str = "quick",
    sample_rows: int | None = None,
    max_problems: int = MAX_PROBLEMS,
    progress: Callable[[str, int, int], None] | None = None,
) -> VerifyReport:
    """Look at all versions of a branch.

    Args:
        store: Where the table lies.
        level: ``quick`` looks at manifests, transactions, deletion files and at which files are there; ``full`` also
            reads all values of the newest version that can be read, and holds all bytes of its data and blob files
            against their checksums; ``indices`` compares that version's indices with its columns instead.
        sample_rows: Rows to compare with each segment of an index; all rows and entries if None.
        max_problems: Problems that the report holds; more are only counted.
        progress: Is told what is being looked at, how much of it is done, and how much there is.

    Raises:
        DatasetNotFoundError: There is no table.
        InvalidInputError: There is no such level.
    """
    if level not in LEVELS:
        raise InvalidInputError(f"'level' must be one of {', '.join(LEVELS)}, not {level!r}")
    report = VerifyReport(uri=store.uri, level=level)
    look = _Look(store=store, report=report, progress=progress or (lambda *_: None), max_problems=max_problems)
    numbers = _numbers(look)
    with look.noting("store"):
        look.sizes = {info.path: info.size for folder in SWEPT_FOLDERS for info in store.list(folder)}
    newest: Manifest | None = None
    # The newest version comes first: what is wrong with it is told as its problem, not as that of an older one.
    for done, number in enumerate(reversed(numbers)):
        look.progress("versions", done, len(numbers))
        with look.noting("manifest", version=number):
            manifest = _check_version(look, decode_version(store, number), is_newest=newest is None)
            newest = newest or manifest
    if newest is not None:
        if newest.version == numbers[-1]:
            report.version, report.num_fragments = newest.version, len(newest.fragments)
            report.num_rows = newest.num_rows
        _check_newest(look, newest, sample_rows)
    _check_tags(look, set(numbers))
    with look.noting("ref"):
        _check_branches(look)
    _count_orphans(look)
    look.progress("done", 1, 1)
    return report


def _numbers(look: _Look) -> tuple[int, ...]:
    try:
        numbers = find_versions(look.store).numbers
    except CorruptDataError as error:
        look.note("manifest", str(error))
        return ()
    if not numbers:
        raise DatasetNotFoundError("there is no Lance dataset here", path=look.store.uri)
    return numbers


def _check_version(look: _Look, stored: Manifest, *, is_newest: bool) -> Manifest:
    """Look at a version as its writer left it; return it as readers complete it."""
    manifest, version = stored, stored.version
    look.report.num_versions += 1
    with look.noting("transaction", version=version):
        transaction = load_transaction(look.store, manifest)
        if transaction is None:
            look.note("transaction", "the version does not say how it was made", version=version)
    if manifest.transaction_file:
        path = transaction_path(manifest.transaction_file)
        if path not in look.sizes and manifest.transaction_section is None:
            look.note("transaction", "the file is missing", version=version, path=path)
    _check_schema(look, manifest)
    store = with_bases(look.store, manifest)
    with look.noting("fragment", version=version):
        manifest = completed(look.store, stored)
    _check_counts(look, stored, manifest)
    with look.noting("fragment", version=version):
        manifest.fragments.check(uses_stable_row_ids=manifest.uses_stable_row_ids)
    ids = manifest.fragments.ids
    if len(ids) and manifest.max_fragment_id is not None and int(ids.max()) > manifest.max_fragment_id:
        look.note("fragment", f"a fragment has an id above the highest, {manifest.max_fragment_id}", version=version)
    records = manifest.fragments.records
    for done, record in enumerate(records):
        if record in look.seen and not manifest.base_paths:
            continue
        if is_newest:
            look.progress("fragments", done, len(records))
        look.seen.add(record)
        with look.noting("fragment", version=version):
            _check_fragment(look, store, manifest, decode_fragment(record))
    _check_indices(look, store, manifest)
    look.references.add(manifest_files(stored))
    return manifest


def _check_counts(look: _Look, stored: Manifest, completed: Manifest) -> None:
    """Note row counts that a manifest should record and does not, or that differ from the files."""
    if stored is completed:
        return
    for recorded, counted in zip(stored.fragments, completed.fragments, strict=True):
        pairs = ((recorded.physical_rows, counted.physical_rows), (recorded.num_deleted_rows, counted.num_deleted_rows))
        # Writers that did not record who they are may leave counts out: readers know that.
        if all(number == other or (not number and not stored.has_reliable_counts) for number, other in pairs):
            continue
        (rows, true_rows), (deleted, true_deleted) = pairs
        message = (
            f"the version says {rows:,} rows, {deleted:,} of them deleted; its files say {true_rows:,} and "
            f"{true_deleted:,}, and so does the next version"
        )
        look.note("fragment", message, version=stored.version, fragment_id=counted.id)


def _check_schema(look: _Look, manifest: Manifest) -> None:
    ids = [field.id for field in manifest.schema.walk()]
    if len(set(ids)) < len(ids):
        look.note("schema", "two fields have the same id", version=manifest.version)
    with look.noting("schema", version=manifest.version):
        manifest.schema.to_arrow()


def _check_fragment(look: _Look, store: Store, manifest: Manifest, fragment: Fragment) -> None:
    version, where = manifest.version, fragment.id
    stored = [field_id for file in fragment.files for field_id in file.fields if field_id != TOMBSTONE_FIELD_ID]
    if not fragment.files or not fragment.physical_rows:
        look.note("fragment", "it has no data files, or no rows", version=version, fragment_id=where)
    if len(set(stored)) < len(stored):
        look.note("fragment", "two data files hold the same field", version=version, fragment_id=where)
    for top in manifest.schema.fields:
        if not top.nullable and not {field.id for field in top.walk()} & set(stored):
            message = f"field {top.name!r} must not be null, and is in none of its data files"
            look.note("fragment", message, version=version, fragment_id=where)
    expected = {data_file_path(file): file.file_size_bytes for file in fragment.files}
    for path, size in expected.items():
        _check_size(look, store, path, size, kind="data_file", version=version, fragment_id=where)
    if fragment.deletion_file is not None:
        path = deletion_file_path(where, fragment.deletion_file)
        look.report.num_files += 1
        with look.noting("deletion_file", version=version, fragment_id=where, path=path):
            load_deletions(store, fragment)  # which compares the count
            if fragment.deletion_file.num_deleted_rows >= fragment.physical_rows:
                look.note("deletion_file", "all rows are deleted", version=version, fragment_id=where, path=path)


def _check_size(
    look: _Look, store: Store, path: str, size: int, *, kind: str, version: int, fragment_id: int | None = None
) -> None:
    """Compare what is there with what should be; a file is told of once."""
    look.report.num_files += 1
    if path in look.missing:
        return
    with look.noting(kind, version=version, fragment_id=fragment_id, path=path):
        actual = look.sizes.get(path)
        if actual is None and path.startswith(BASE_PREFIX):  # somewhere else, and not in our listing
            (actual,) = object_sizes(store, [path])
        if actual is None:
            look.missing.add(path)
            look.note(kind, "the file is missing", version=version, fragment_id=fragment_id, path=path)
        elif size and actual != size:
            message = f"the file has {actual:,} bytes, the version says {size:,}"
            look.note(kind, message, version=version, fragment_id=fragment_id, path=path)


def _check_indices(look: _Look, store: Store, manifest: Manifest) -> None:
    live = {field.id for field in manifest.schema.walk()}
    for index in manifest.indices:
        with look.noting("index", version=manifest.version):
            fields = index_fields(index)
            if not live.issuperset(fields.fields):
                look.note("index", f"index {index.name!r} is over fields that are gone", version=manifest.version)
            folder = f"{base_prefix(index.base_id)}{INDICES_FOLDER}/{index.uuid_text}"
            for name, size in fields.files:
                _check_size(look, store, f"{folder}/{name}", size, kind="index", version=manifest.version)
            is_recorded = bool(fields.files) or not fields.fields or index.base_id is not None
            is_empty = index.fragment_ids == frozenset()  # pylance's index of too few vectors to train one
            if not is_recorded and not is_empty and not any(path.startswith(f"{folder}/") for path in look.sizes):
                message = f"index {index.name!r} has no files"
                look.note("index", message, version=manifest.version, path=folder)


# --------------------------------------------------------------------------------------------------- the newest version


def _check_newest(look: _Look, manifest: Manifest, sample_rows: int | None) -> None:
    files = OpenFiles(with_bases(look.store, manifest))
    _check_row_ids(look, manifest, files)
    if look.report.level == "indices":
        _audit_indices(look, manifest, files, sample_rows)
    if look.report.level == "full":
        for done, fragment in enumerate(_fragments(manifest)):
            look.progress("values", done, len(manifest.fragments))
            _check_checksums(look, manifest, fragment, files.store)
            _check_values(look, manifest, FragmentReader(files, fragment))


def audit_indices(store: Store, manifest: Manifest) -> list[VerifyProblem]:
    """Compare all rows and entries of the indices of a version, which need not be committed, with its columns."""
    report = VerifyReport(uri=store.uri, level="indices")
    look = _Look(store=store, report=report, progress=lambda *_: None)
    _audit_indices(look, manifest, OpenFiles(with_bases(store, manifest)), None)
    return report.problems


def _audit_indices(look: _Look, manifest: Manifest, files: OpenFiles, sample_rows: int | None) -> None:
    """Compare what indices answer with what the columns hold."""
    from lance_core.maintenance.audit import Samples, audit_segment  # noqa: PLC0415 brings Arrow's kernels along

    samples = None if sample_rows is None else Samples(manifest, files, sample_rows)
    for done, index in enumerate(manifest.indices):
        look.progress("indices", done, len(manifest.indices))
        folder = f"{base_prefix(index.base_id)}{INDICES_FOLDER}/{index.uuid_text}"
        with look.noting("index", version=manifest.version, path=folder, index_name=index.name):
            opened = open_segment(manifest, files, index)
            if opened is None:
                continue
            for fragment_id, message in audit_segment(manifest, files, opened, samples=samples):
                look.note(
                    "index",
                    message,
                    version=manifest.version,
                    fragment_id=fragment_id,
                    path=folder,
                    index_name=index.name,
                )


def _fragments(manifest: Manifest) -> Iterator[Fragment]:
    """Those that can be decoded; the others were told of already."""
    for record in manifest.fragments.records:
        try:
            yield decode_fragment(record)
        except LanceError:
            continue


def _check_row_ids(look: _Look, manifest: Manifest, files: OpenFiles) -> None:
    """Note live rows that share an id or have one that is still free, and versions of rows that make no sense."""
    if not manifest.uses_stable_row_ids:
        return
    seen = BitMap64()
    for fragment in _fragments(manifest):
        if has_spilled_lineage(fragment) and look.report.level != "full":
            continue  # in a data file, which a quick look does not open
        with look.noting("row_ids", version=manifest.version, fragment_id=fragment.id):
            reader = FragmentReader(files, fragment)
            ids = row_ids(reader)
            mask = reader.live_mask(0, fragment.physical_rows)
            ids = ids if mask is None else ids[mask]
            if len(ids) and int(ids.max()) >= manifest.next_row_id:
                message = f"a row has id {int(ids.max())}, but {manifest.next_row_id} is the next free one"
                look.note("row_ids", message, version=manifest.version, fragment_id=fragment.id)
            before = len(seen)
            seen.update(BitMap64(ids))
            if len(seen) - before < len(ids):
                message = f"{len(ids) - len(seen) + before} rows have ids that other rows have, too"
                look.note("row_ids", message, version=manifest.version, fragment_id=fragment.id)
            newest = max(int(values.max(initial=0)) for values in (created_versions(reader), updated_versions(reader)))
            if newest > manifest.version:
                message = f"a row was created or changed in version {newest}, which does not exist yet"
                look.note("row_ids", message, version=manifest.version, fragment_id=fragment.id)


def _check_checksums(look: _Look, manifest: Manifest, fragment: Fragment, store: Store) -> None:
    for file in fragment.files:
        path = data_file_path(file)
        if path in look.missing:
            continue
        with look.noting("checksum", version=manifest.version, fragment_id=fragment.id, path=path):
            if check_file(store.reader(path)):
                look.report.num_checked_files += 1
                if has_blobs(manifest.schema):
                    _check_blob_files(look, manifest, fragment, store, path)


def _check_blob_files(look: _Look, manifest: Manifest, fragment: Fragment, store: Store, data_path: str) -> None:
    checksums = blob_sums(FileBytes(store.reader(data_path), when=Checking.ALL), path=data_path)
    if checksums is None:
        return
    for number in range(1, checksums.num_files + 1):
        path = blob_file_path(data_path, number)
        with look.noting("checksum", version=manifest.version, fragment_id=fragment.id, path=path):
            CheckedBlobFile(store.reader(path), checksums, number, path=path).check_all()
            look.report.num_checked_files += 1


def _check_values(look: _Look, manifest: Manifest, reader: FragmentReader) -> None:
    """Read each column, so that one that is damaged does not hide others."""
    fragment = reader.fragment
    for top in manifest.schema.fields:
        with look.noting("values", version=manifest.version, fragment_id=fragment.id):
            projection = Schema((top,))
            rows_per_batch = default_batch_size(projection.to_arrow())
            for rows in reader.scan(projection, start=0, end=fragment.physical_rows, batch_size=rows_per_batch):
                (column,) = rows.columns
                column.validate(full=True)
                look.report.num_bytes_read += column.get_total_buffer_size()


# ----------------------------------------------------------------------------------------------------- around versions


def _check_tags(look: _Look, numbers: Iterable[int]) -> None:
    """Tags of this branch; those of other branches are judged where their versions are."""
    names: list[str] = []
    _, own_branch = branch_of(look.store)
    with look.noting("ref"):
        names = ref_names(look.store, TAGS_FOLDER)
    for name in names:
        with look.noting("ref", path=f"{TAGS_FOLDER}/{name}"):
            tag = get_tag(look.store, name)
            if tag.branch == own_branch and tag.version not in numbers:
                message = f"tag {name!r} names version {tag.version}, which does not exist"
                look.note("ref", message, path=f"{TAGS_FOLDER}/{name}")


def _check_branches(look: _Look) -> None:
    """Note files of branches that cannot be read: cleanup does not know which versions they keep."""
    for name in ref_names(look.store, BRANCHES_FOLDER):
        with look.noting("ref", path=f"{BRANCHES_FOLDER}/{name}"):
            get_branch(look.store, name)


def _count_orphans(look: _Look) -> None:
    """Files that none of the versions needs; manifests, and what is beside them, are none."""
    if any(problem.kind == "manifest" for problem in look.report.problems):
        return  # what a manifest needs that cannot be read is unknown
    for path, size in look.sizes.items():
        name = path.rpartition("/")[2]
        if path.startswith(f"{VERSIONS_FOLDER}/") or name.startswith(_TEMPORARY_PREFIX) or path in look.references:
            continue
        look.report.num_orphans += 1
        look.report.orphan_bytes += size
