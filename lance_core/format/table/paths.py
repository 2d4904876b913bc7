"""Paths of the parts of a dataset, relative to its root.

    data/{name}.lance
    _deletions/{fragment id}-{read version}-{id}.arrow | .bin
    _versions/{20 digits of 2^64 - 1 - version}.manifest      (scheme V2: the newest version sorts first)
    _versions/{version}.manifest                              (scheme V1)
    _versions/d{version}.manifest                             (detached: opened by number only)
    _transactions/{read version}-{uuid}.txn
    _refs/tags/{percent-encoded name}.json, _refs/branches/{percent-encoded name}.json
    tree/{name of a branch}/...                               (like a dataset of its own, without _refs)
    _base/{id}/...                                            (nowhere on disk: how lance_core names files that lie
                                                               below a base path of the manifest)

Names that come out of a manifest are one path segment; anything else could lead out of the dataset and is refused.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from lance_core.common.frozen import NamedTuple
from lance_core.errors import CorruptDataError
from lance_core.format.table.fragment import DeletionFileType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_core.format.table.fragment import DataFile, DeletionFile, ExternalFile

VERSIONS_FOLDER = "_versions"
TRANSACTIONS_FOLDER = "_transactions"
DATA_FOLDER = "data"
DELETIONS_FOLDER = "_deletions"
INDICES_FOLDER = "_indices"
TABLE_FOLDERS = (VERSIONS_FOLDER, TRANSACTIONS_FOLDER, DATA_FOLDER, DELETIONS_FOLDER, INDICES_FOLDER, "_blobs", "_fri")
"""All that a branch consists of."""

_BASE_FOLDERS = frozenset({DATA_FOLDER, DELETIONS_FOLDER, INDICES_FOLDER})

TAGS_FOLDER = "_refs/tags"
BRANCHES_FOLDER = "_refs/branches"
BRANCH_FILES_FOLDER = "tree"
DAMAGED_FOLDER = "_damaged"
"""Small damaged files that a repair took away, under the paths that they had; only lance_core knows it."""
BASE_PREFIX = "_base/"
TEMPORARY_PREFIX = ".tmp"
"""Names of files that are not finished begin so, here and in pylance."""

LATEST_VERSION_HINT = "_versions/latest_version_hint.json"

DETACHED_BIT = 1 << 63
_MAX_VERSION = (1 << 64) - 1
_SUFFIX = ".manifest"
_V2_DIGITS = 20
_V2_SIZE = _V2_DIGITS + len(_SUFFIX)
_HINT = re.compile(rb'\s*\{\s*"version"\s*:\s*([0-9]{1,19})\s*\}\s*')
_DELETION_SUFFIXES = {DeletionFileType.ARROW_ARRAY: "arrow", DeletionFileType.BITMAP: "bin"}


class ManifestNaming(Enum):
    """Naming scheme of manifest files."""

    V1 = "V1"
    V2 = "V2"


_V2 = ManifestNaming.V2  # to look up a member of an enumeration takes as long as to read a number


class ManifestName(NamedTuple):
    """Parsed name of a manifest file.

    Attributes:
        version: Version number.
        naming: Scheme; None for a detached version.
    """

    version: int
    naming: ManifestNaming | None


def manifest_path(version: int, naming: ManifestNaming) -> str:
    """Path of the manifest of a version (detached versions have one name in both schemes)."""
    if version & DETACHED_BIT:
        return f"{VERSIONS_FOLDER}/d{version}{_SUFFIX}"
    if naming is ManifestNaming.V1:
        return f"{VERSIONS_FOLDER}/{version}{_SUFFIX}"
    return f"{VERSIONS_FOLDER}/{_MAX_VERSION - version:0{_V2_DIGITS}d}{_SUFFIX}"


def parse_manifest_name(name: str) -> ManifestName | None:
    """Read the name of a file in ``_versions/``; None if it is no manifest (temporary files, the version hint)."""
    stem = name.removesuffix(_SUFFIX)
    if stem == name or not stem.isascii():
        return None
    if stem.isdigit():
        is_v2 = len(stem) == _V2_DIGITS
        return ManifestName(_MAX_VERSION - int(stem), _V2) if is_v2 else ManifestName(int(stem), ManifestNaming.V1)
    return ManifestName(int(stem[1:]), None) if stem[:1] == "d" and stem[1:].isdigit() else None


def split_v2_names(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Tell names of attached V2 manifests from all others, without a look at each character of a long history."""
    v2 = [name for name in names if len(name) == _V2_SIZE]
    others = [name for name in names if len(name) != _V2_SIZE] if len(v2) < len(names) else []
    if v2 and not (min(v2) >= "0" and max(v2) < "2"):  # 2^64 begins with 1; detached versions begin with "d"
        is_v2 = {name: (parsed := parse_manifest_name(name)) and parsed.naming is ManifestNaming.V2 for name in v2}
        others += [name for name in v2 if not is_v2[name]]
        v2 = [name for name in v2 if is_v2[name]]
    return v2, others


def v2_versions(names: Sequence[str]) -> tuple[int, ...]:
    """Numbers of the versions whose manifests have these names, which `split_v2_names` found; ascending."""
    return tuple([_MAX_VERSION - int(name[:_V2_DIGITS]) for name in sorted(names, reverse=True)])


def parse_version(name: str) -> int:
    """Return number of an attached version, from the name of its manifest.

    Raises:
        CorruptDataError: It is not the name of a manifest.
    """
    parsed = parse_manifest_name(name)
    if parsed is None:
        raise CorruptDataError(f"{name!r} looks like a manifest, but is not named like one")
    return parsed.version


def decode_version_hint(data: bytes) -> int | None:
    """Return the version that a hint names; None if it is none."""
    match = _HINT.fullmatch(data)
    return None if match is None else int(match[1])


def transaction_path(file_name: str) -> str:
    """Path of a transaction file."""
    return f"{TRANSACTIONS_FOLDER}/{_segment(file_name, 'transaction file')}"


def data_file_path(file: DataFile) -> str:
    """Path of a data file.

    Raises:
        CorruptDataError: The name is not one path segment.
    """
    return f"{base_prefix(file.base_id)}{DATA_FOLDER}/{_segment(file.path, 'data file')}"


def deletion_file_path(fragment_id: int, file: DeletionFile) -> str:
    """Path of a fragment's deletion file."""
    name = f"{fragment_id}-{file.read_version}-{file.id}.{_DELETION_SUFFIXES[file.file_type]}"
    return f"{base_prefix(file.base_id)}{DELETIONS_FOLDER}/{name}"


def external_file_path(file: ExternalFile) -> str:
    """Path of a file that holds row ids or row versions.

    Raises:
        CorruptDataError: The path leads out of the dataset.
    """
    if file.path.startswith(BASE_PREFIX):
        raise CorruptDataError(f"{file.path!r} is not the path of a file with row ids or versions")
    for segment in file.path.split("/"):
        _segment(segment, "file with row ids or versions")
    return file.path


def base_prefix(base_id: int | None) -> str:
    """Return the path prefix of files below a base path; empty for files of the dataset itself."""
    return "" if base_id is None else f"{BASE_PREFIX}{base_id}/"


def split_base_path(path: str) -> tuple[int, str]:
    """Return the number of the base path, and the path below it.

    Raises:
        CorruptDataError: Not a path below a base path.
    """
    number, _, rest = path.removeprefix(BASE_PREFIX).partition("/")
    if not path.startswith(BASE_PREFIX) or not (number.isascii() and number.isdigit()) or not rest:
        raise CorruptDataError(f"{path!r} is not a path below a base path")
    return int(number), rest


def path_in_base(path: str, *, is_dataset_root: bool) -> str:
    """Path of a file in its base path.

    Args:
        path: Its path in a dataset.
        is_dataset_root: True if the base path is laid out like a dataset; else data files, deletion files and folders
            of indices lie directly in it. (pylance 14.0.2 does so with data files and indices, and refuses deletion
            files there.)
    """
    folder, _, rest = path.partition("/")
    return rest if not is_dataset_root and folder in _BASE_FOLDERS else path


def branch_folder(branch: str) -> str:
    """Folder of a branch."""
    return f"{BRANCH_FILES_FOLDER}/{branch}"


def branch_path(name: str) -> str:
    """Path of the file that describes a branch."""
    return f"{BRANCHES_FOLDER}/{quote(name, safe='')}.json"


def tag_path(name: str) -> str:
    """Path of a tag."""
    return f"{TAGS_FOLDER}/{quote(name, safe='')}.json"


def limit_of(path: str) -> str:
    """Return the name of the limit (of `lance_core.common.limits.Limits`) for a file that is read as a whole."""
    parts = path.split("/")
    if DELETIONS_FOLDER in parts:
        return "max_deletion_bytes"
    if TRANSACTIONS_FOLDER in parts:
        return "max_transaction_bytes"
    return "max_ref_bytes" if "_refs" in parts else "max_manifest_bytes"


def parse_ref_path(path: str) -> str | None:
    """Name of the tag or branch in a file of ``_refs/``; None if the file is something else."""
    name = path.rpartition("/")[2]
    return unquote(name.removesuffix(".json")) if name.endswith(".json") and not name.startswith(".") else None


def _segment(name: str, what: str) -> str:
    if name in {"", ".", ".."} or "/" in name or "\\" in name or "\0" in name:
        raise CorruptDataError(f"{name!r} is not the name of a {what}")
    return name
