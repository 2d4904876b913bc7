"""Location of an asset's table: asset key -> URI, and opening it.

``root/part1/part2.lance``: one folder per prefix, the suffix ``.lance`` on the last part only. That is the layout
of LanceDB and of Lance's directory catalog, so those tools open the same tables, and a table can never be mistaken
for a folder that holds tables.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import dagster as dg

import lance_core
from lance_core.common.hints import did_you_mean
from lance_core.errors import (
    DatasetAlreadyExistsError,
    DatasetNotFoundError,
    InvalidInputError,
    RefAlreadyExistsError,
    RefNotFoundError,
)
from lance_core.values.table_id import find_table, table_to_write
from lance_dagster.handlers.base import store_options

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    import pyarrow as pa

SUFFIX = ".lance"
_NAMESPACE = "namespace://"
_BRANCHES = "/tree/"
PLACEHOLDER = "lance/placeholder_for"
"""Transaction property of an empty main branch: the branch that was begun before the main branch held data."""
# A part may not start with a dot (hidden, "..") nor be a table's folder name; the rest is what every object store,
# file system and URI parser takes literally.
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.=+@-]*")
_MAX_PART = 128
_SHOWN_REFS = 10


def table_path(parts: Sequence[str]) -> str:
    """Relative path of an asset's table.

    Args:
        parts: Parts of the asset key.

    Raises:
        InvalidInputError: For a part that is no safe folder name everywhere; nothing is escaped silently, because two
            keys could then meet in one table.
    """
    for part in parts:
        if not _PART.fullmatch(part) or len(part) > _MAX_PART or part.lower().endswith(SUFFIX):
            msg = (
                f"Asset key part {part!r} of {list(parts)} cannot be a table's folder: use letters, digits and _-.=+@ "
                f"(not first a dot, not the ending {SUFFIX!r}, at most {_MAX_PART} characters), or set the asset's "
                "metadata 'lance/uri' to choose the place yourself."
            )
            raise InvalidInputError(msg)
    if not parts:
        msg = "An empty asset key has no table."
        raise InvalidInputError(msg)
    return "/".join(parts) + SUFFIX


def absolute_root(root: str) -> str:
    """``root`` without a trailing slash; a local path becomes absolute, because Spark's workers run elsewhere."""
    if not root.strip():
        msg = "`root` is empty: give the folder or URI that holds the tables."
        raise InvalidInputError(msg)
    if "://" in root:
        return root.rstrip("/")
    return os.path.abspath(os.path.expanduser(root))  # noqa: PTH100,PTH111 - text in, text out: a URI is no Path


def connect_namespace(properties: dict[str, str]) -> Any:
    """Open the namespace that ``impl`` and properties name.

    Raises:
        InvalidInputError: ``impl`` is missing, or a property is wrong.
    """
    from lance_core.namespace import connect  # noqa: PLC0415 an extra

    if "impl" not in properties:
        msg = "`namespace` needs `impl`: dir, rest, or a name that the package lance-namespace knows."
        raise InvalidInputError(msg)
    return connect(properties.pop("impl"), properties)


def _create_namespaces(namespace: Any, names: Sequence[str]) -> None:
    """Create the namespaces that a table is to be in."""
    from lance_namespace import CreateNamespaceRequest  # noqa: PLC0415 an extra

    for count in range(1, len(names) + 1):
        namespace.create_namespace(CreateNamespaceRequest(id=list(names[:count]), mode="exist_ok"))


def _keys_in(namespace: Any, names: Sequence[str], below: Sequence[str] = ()) -> list[dg.AssetKey]:
    """Keys of the tables in a namespace and in those below it, without the names that come first."""
    from lance_namespace import ListNamespacesRequest, ListTablesRequest  # noqa: PLC0415 an extra

    where = [*names, *below]
    tables = _pages(lambda token: namespace.list_tables(ListTablesRequest(id=where, page_token=token)), "tables")
    children = _pages(
        lambda token: namespace.list_namespaces(ListNamespacesRequest(id=where, page_token=token)), "namespaces"
    )
    keys = [dg.AssetKey([*below, name]) for name in sorted(tables)]
    return keys + [key for name in sorted(children) for key in _keys_in(namespace, names, [*below, name])]


def _pages(ask: Callable[[str | None], Any], field_name: str) -> list[str]:
    """Names of all pages of an answer."""
    names: list[str] = []
    token: str | None = None
    while True:
        answer = ask(token)
        names.extend(getattr(answer, field_name))
        token = answer.page_token
        if not token:
            return names


def is_placeholder(dataset: lance_core.LanceDataset) -> bool:
    """Return whether a version is the empty beginning of a table that only branches have written."""
    if dataset.branch is not None or dataset.version != 1 or dataset.count_rows():
        return False
    transaction = dataset.read_transaction(1)
    return transaction is not None and PLACEHOLDER in (transaction.transaction_properties or {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """All tables below one root.

    Args:
        root: Folder or URI; names in the namespace, with slashes between them, if there is one.
        storage_options: Credentials and settings of the object store.
        base_store_params: The same for other places that a table may name, by their address.
        namespace: ``impl`` and properties of a namespace that knows where tables are; see
            `lance_core.namespace.connect`.
        vended: Storage options of the tables that a namespace was asked for, by their URI.
    """

    root: str
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    base_store_params: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    namespace: Mapping[str, str] = field(default_factory=dict, repr=False)
    vended: dict[str, Mapping[str, str]] = field(default_factory=dict, repr=False, compare=False)

    @property
    def options(self) -> dict[str, Any]:
        """Settings of the stores, as the functions of lance_core take them."""
        return store_options(self.storage_options, self.base_store_params)

    def storage_options_of(self, uri: str) -> Mapping[str, str]:
        """Storage options of a table (or a branch of it), those that its namespace vends among them."""
        return self.vended.get(uri.partition(_BRANCHES)[0], self.storage_options)

    def options_of(self, uri: str) -> dict[str, Any]:
        """Settings of the stores of a table, as the functions of lance_core take them."""
        return store_options(self.storage_options_of(uri), self.base_store_params)

    def address(self, asset_key: dg.AssetKey, *, given: object = None) -> str:
        """Text that tells an asset's table from others; no namespace is asked.

        Args:
            asset_key: The asset.
            given: Its metadata ``lance/uri``: a URI, or ``namespace://`` and the names of a table, with slashes between
                them; None if the table is where the key says.
        """
        if given:
            return str(given).rstrip("/")
        if self.namespace:
            return f"{_NAMESPACE}{'/'.join(self._table_id(asset_key))}"
        return f"{absolute_root(self.root)}/{table_path(asset_key.path)}"

    def uri(self, asset_key: dg.AssetKey, *, given: object = None, is_written: bool = False) -> str:
        """URI of an asset's table (see the module's text).

        Args:
            asset_key: The asset.
            given: As for ``address``.
            is_written: Give the table a place if its namespace does not know it yet.

        Raises:
            InvalidInputError: The table is to be in a namespace, and there is none.
        """
        address = self.address(asset_key, given=given)
        if not address.startswith(_NAMESPACE):
            return address
        if not self.namespace:
            msg = f"'lance/uri' is {address!r}, which needs `namespace` of the IO manager and of the resource."
            raise InvalidInputError(msg)
        namespace = connect_namespace(dict(self.namespace))
        table_id = address.removeprefix(_NAMESPACE).split("/")
        try:
            if is_written:
                _create_namespaces(namespace, table_id[:-1])
                uri, options = table_to_write(None, namespace, table_id, "append", self.storage_options)
            else:
                uri, options = find_table(None, namespace, table_id, self.storage_options)
        except DatasetNotFoundError:
            return address
        self.vended[uri] = options
        return uri

    def _table_id(self, asset_key: dg.AssetKey) -> list[str]:
        table_path(asset_key.path)
        return [*(name for name in self.root.split("/") if name), *asset_key.path]

    def asset_key(self, uri: str) -> dg.AssetKey | None:
        """The asset whose table (or a branch of it) has a URI: the reverse of ``uri``; None for any other place."""
        root = f"{absolute_root(self.root)}/"
        if not uri.startswith(root):
            return None
        parts = uri.removeprefix(root).split("/")
        last = next((i for i, part in enumerate(parts) if part.endswith(SUFFIX)), None)
        if last is None or parts[last + 1 : last + 2] not in ([], [""], ["tree"]):
            return None
        return dg.AssetKey([*parts[:last], parts[last].removesuffix(SUFFIX)])

    def asset_keys(self) -> list[dg.AssetKey]:
        """Keys of all tables: those below the root, or those that the namespace has below its names in the root."""
        if self.namespace:
            return _keys_in(connect_namespace(dict(self.namespace)), [name for name in self.root.split("/") if name])
        from lance_core.reports.listing import find_tables  # noqa: PLC0415 imports what opens stores

        addresses = find_tables(absolute_root(self.root), dict(self.storage_options))
        return [key for address in addresses for key in [self.asset_key(address)] if key is not None]

    def open(
        self,
        uri: str,
        *,
        version: int | str | None = None,
        branch: str | None = None,
        as_of: datetime | str | None = None,
        allow_placeholder: bool = False,
    ) -> lance_core.LanceDataset:
        """Open a table.

        Args:
            uri: From ``uri``.
            version: Version number, tag, or None for the newest.
            branch: Branch, or None for the main branch (or the branch that the URI is of).
            as_of: The newest version before this point in time; counts only without ``version``.
            allow_placeholder: Open a main branch that only holds the place for other branches.

        Raises:
            DatasetNotFoundError: No table there, or only branches of it hold data so far.
            VersionNotFoundError, RefNotFoundError: No such version, tag or branch.
        """
        if uri.startswith(_NAMESPACE):
            raise DatasetNotFoundError("The namespace has no such table.", path=uri)
        dataset = lance_core.dataset(uri, version=version, asof=as_of, branch=branch, **self.options_of(uri))
        if not allow_placeholder and is_placeholder(dataset):
            raise DatasetNotFoundError("Only branches of this table hold data so far.", path=uri)
        return dataset

    def open_preferred(self, uri: str, branch: str | None) -> lance_core.LanceDataset:
        """Open the newest version of a branch if the table has it, else of the main branch."""
        if branch is not None:
            try:
                return self.open(uri, branch=branch)
            except RefNotFoundError:
                pass
        return self.open(uri)

    def refs_text(self, uri: str, name: object) -> str:
        """Return a sentence about the tags and branches of a table, for a message about one that is not there."""
        dataset = self.open(uri, allow_placeholder=True)
        names = [*dataset.tags.list(), *dataset.branches.list()]
        return did_you_mean(name, names) or f". Its tags and branches are: {', '.join(names[:_SHOWN_REFS]) or 'none'}"

    def find(self, uri: str) -> lance_core.LanceDataset | None:
        """Open a table, or None if there is none; every other failure is raised."""
        try:
            return self.open(uri)
        except DatasetNotFoundError:
            return None

    def is_begun(self, uri: str) -> bool:
        """Return whether there is an empty main branch that only holds the place for other branches."""
        try:
            return is_placeholder(self.open(uri, allow_placeholder=True))
        except DatasetNotFoundError:
            return False

    def branch_uri(self, uri: str, branch: str, schema: pa.Schema | None = None) -> str:
        """URI of a branch of a table, which is begun at the newest version of the main branch if it is not there.

        Args:
            uri: Of the table.
            branch: The branch.
            schema: Columns of a table that is not there yet. Its main branch is then begun without rows, because a
                branch needs one, and counts as missing until it is written.

        Raises:
            DatasetNotFoundError: There is no table to branch from, and no ``schema``.
        """
        try:
            return self.open(uri, branch=branch).uri
        except (DatasetNotFoundError, RefNotFoundError):
            pass
        try:
            main = self.open(uri, allow_placeholder=True)
        except DatasetNotFoundError as error:
            if schema is None:
                msg = f"There is no table yet from which the branch {branch!r} could begin."
                raise DatasetNotFoundError(msg, path=uri) from error
            main = self._begin(uri, branch, schema)
        try:
            return main.create_branch(branch).uri
        except RefAlreadyExistsError:
            return self.open(uri, branch=branch).uri

    def _begin(self, uri: str, branch: str, schema: pa.Schema) -> lance_core.LanceDataset:
        """Begin a main branch without rows; somebody else may do so at the same time."""
        with suppress(DatasetAlreadyExistsError):
            lance_core.write_dataset(
                schema.empty_table(),
                uri,
                mode="create",
                transaction_properties={PLACEHOLDER: branch},
                **self.options_of(uri),
            )
        return self.open(uri, allow_placeholder=True)
