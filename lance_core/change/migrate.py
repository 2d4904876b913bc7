"""Give the manifests of an old table the names that let the newest version be found without listing all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_core.errors import CorruptDataError
from lance_core.format.table.feature_flags import check_writable
from lance_core.format.table.manifest import decode_manifest_file
from lance_core.format.table.paths import VERSIONS_FOLDER, ManifestNaming, manifest_path, parse_manifest_name
from lance_core.table.locations import without_bases

if TYPE_CHECKING:
    from lance_core.store.base import Store


def migrate_manifest_paths_v2(store: Store) -> int:
    """Rename manifests of scheme V1 to scheme V2, the oldest first; goes on where an earlier run stopped.

    Nobody else may write meanwhile: a table with names of both schemes is refused by all readers, and a writer that
    began before would use the old scheme.

    Args:
        store: The branch.

    Returns:
        How many were renamed.

    Raises:
        CorruptDataError: A manifest is damaged, or there are different ones for one version.
        UnsupportedError: The table cannot be written by lance_core.
    """
    branch_root = without_bases(store)
    parsed = (parse_manifest_name(name) for name in branch_root.names(VERSIONS_FOLDER))
    numbers = sorted(name.version for name in parsed if name is not None and name.naming is ManifestNaming.V1)
    for number in numbers:
        old, new = (manifest_path(number, naming) for naming in (ManifestNaming.V1, ManifestNaming.V2))
        content = branch_root.get(old)
        manifest = decode_manifest_file(content, version=number, path=f"{branch_root.uri}/{old}")
        check_writable(manifest.writer_feature_flags, path=branch_root.uri)
        if not branch_root.put_if_absent(new, content) and branch_root.get(new) != content:
            raise CorruptDataError(f"version {number} has two different manifests", path=f"{branch_root.uri}/{new}")
        branch_root.delete([old])
    return len(numbers)
