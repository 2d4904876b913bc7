"""Rows of a branch become those of the main branch: the last step of write, audit, publish.

Lance has no merge of branches, so the rows are written again; nobody sees a part of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import lance_core
from lance_core.errors import CommitConflictError, RefNotFoundError
from lance_dagster.versions.history import data_changes

if TYPE_CHECKING:
    from lance_dagster.tables import Tables

PUBLISHED = "lance/published_from"
"""Transaction property: the branch, ``@``, and its version."""


def publish(tables: Tables, uri: str, branch: str, *, where: str | None) -> lance_core.LanceDataset:
    """Replace rows of the main branch by those of a branch, in one commit.

    Args:
        tables: All tables.
        uri: This one.
        branch: The branch.
        where: SQL predicate: only these rows are replaced, by those of the branch; all rows and columns if None.

    Returns:
        The main branch at the version made.

    Raises:
        RefNotFoundError: No such branch.
        CommitConflictError: Without ``where``: others changed the main branch since the branch began, which the branch
            knows nothing of.
    """
    source, main = tables.open(uri, branch=branch), tables.open(uri, allow_placeholder=True)
    properties = {PUBLISHED: f"{branch}@{source.version}"}
    rows = source.scanner(filter=where).to_reader()
    if where is not None:
        main.replace_where(where, rows, transaction_properties=properties)
        return main
    _check_unchanged(main, branch)
    fragments = lance_core.write_fragments(rows, main, mode="overwrite")
    overwrite = lance_core.LanceOperation.Overwrite(source.schema, fragments)
    transaction = lance_core.Transaction(main.version, overwrite, transaction_properties=properties)
    # Nothing may come in between: that would be undone.
    return lance_core.LanceDataset.commit(main, transaction, max_retries=0)


def check_publishable(tables: Tables, uri: str, branch: str) -> None:
    """Check that all of a branch can be published.

    Raises:
        RefNotFoundError: No such branch.
        CommitConflictError: Others changed the main branch since the branch began.
    """
    _check_unchanged(tables.open(uri, allow_placeholder=True), branch)


def _check_unchanged(main: lance_core.LanceDataset, branch: str) -> None:
    listed = main.branches.list().get(branch)
    if listed is None:
        raise RefNotFoundError(f"There is no branch {branch!r}.", path=main.uri)
    for version, properties in data_changes(main, after=listed["parent_version"]):
        if not properties.get(PUBLISHED, "").startswith(f"{branch}@"):
            msg = (
                f"Version {version} of the main branch is newer than the branch {branch!r} and was not made from it: "
                "publishing would undo it. Publish some rows only (`LanceResource.publish(..., where=)`), or drop the "
                "branch and begin it anew."
            )
            raise CommitConflictError(msg, path=main.uri)
