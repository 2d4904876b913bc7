"""A namespace in a folder: tables lie below it, and a Lance table named ``__manifest`` says which name is where.

The layout is that of pylance 14.0.2. Each row of the manifest is a namespace or a table; the id of an object is its
names from the root, joined by ``$``. Folders ``NAME.lance`` in the root are tables of the root even without a row.
"""

from __future__ import annotations

import json
import uuid
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import lance_namespace as ln
import pyarrow as pa
import pyarrow.compute as pc

from lance_core.common.unsupported import refuse_given, with_refused
from lance_core.dataset import LanceDataset, dataset
from lance_core.errors import DatasetAlreadyExistsError, DatasetNotFoundError, InvalidInputError
from lance_core.store.open import open_store
from lance_core.table.locations import remove_empty_folders

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from lance_core.store.cloud.cloud_store import CloudStore
    from lance_core.values.session import Session

_MANIFEST = "__manifest"
_SUFFIX = ".lance"
_RESERVED = ".lance-reserved"
"""File that makes a folder of a table that was declared and not written."""
_DELIMITER = "$"
_STORAGE = "storage."
_TABLE, _NAMESPACE = "table", "namespace"
_KEY = {"lance-schema:unenforced-primary-key:position": "0"}
_SCHEMA = pa.schema(
    [
        pa.field("object_id", pa.string(), nullable=False, metadata=_KEY),
        pa.field("object_type", pa.string(), nullable=False),
        pa.field("location", pa.string()),
        pa.field("metadata", pa.string()),
        pa.field("base_objects", pa.list_(pa.field("object_id", pa.string()))),
    ]
)


@with_refused
class DirectoryNamespace(ln.LanceNamespace):
    """A namespace in a folder.

    Args:
        session: Accepted, see `lance_core.Session`.
        context_provider: Not supported.
        properties: ``root``: path or address of the folder. ``storage.NAME``: a storage option.

    Raises:
        InvalidInputError: ``root`` is missing, or a property is not known.

    Examples:
        >>> names = DirectoryNamespace(root="shop")
        >>> names.namespace_id()
        "DirectoryNamespace(root='shop')"
    """

    def __init__(self, session: Session | None = None, context_provider: Any = None, **properties: str) -> None:
        del session
        refuse_given("DirectoryNamespace", context_provider=context_provider)
        unknown = {name for name in properties if not name.startswith(_STORAGE)} - {"root"}
        if unknown or not properties.get("root"):
            raise InvalidInputError(
                f"a directory namespace takes root and storage.NAME; {', '.join(sorted(unknown)) or 'root'} "
                f"{'is not known' if unknown else 'is missing'}"
            )
        self._properties = dict(properties)
        self._root = properties["root"].rstrip("/")
        if "/" not in self._root:  # in the working directory
            self._root = f"./{self._root}"
        given = ((name[len(_STORAGE) :], text) for name, text in properties.items() if name.startswith(_STORAGE))
        self._options = dict(given)

    def __reduce__(self) -> tuple[Callable[..., DirectoryNamespace], tuple[()]]:
        return partial(DirectoryNamespace, **self._properties), ()

    def spec(self) -> dict[str, Any]:
        """Return the arguments of `lance_core.namespace.connect` that make this namespace."""
        return {"impl": "dir", "properties": self._properties}

    def namespace_id(self) -> str:
        """Return a text that names the folder."""
        return f"DirectoryNamespace(root={self._properties['root']!r})"

    def list_namespaces(self, request: ln.ListNamespacesRequest) -> ln.ListNamespacesResponse:
        """Return the namespaces directly below one, in the order of their names."""
        names, token = _page(self._children(request.id, _NAMESPACE), request.page_token, request.limit)
        return ln.ListNamespacesResponse(namespaces=names, page_token=token)

    def describe_namespace(self, request: ln.DescribeNamespaceRequest) -> ln.DescribeNamespaceResponse:
        """Return the properties of a namespace."""
        row = self._namespace(request.id)
        return ln.DescribeNamespaceResponse(properties=json.loads((row or {}).get("metadata") or "{}"))

    def namespace_exists(self, request: ln.NamespaceExistsRequest) -> ln.NamespaceExistsResponse:
        """Raise NamespaceNotFoundError unless there is such a namespace."""
        self._namespace(request.id)
        return ln.NamespaceExistsResponse()

    def create_namespace(self, request: ln.CreateNamespaceRequest) -> ln.CreateNamespaceResponse:
        """Create a namespace; with mode ``exist_ok`` it may be there."""
        names = _checked(request.id)
        self._namespace(names[:-1])
        text = json.dumps(request.properties, separators=(",", ":")) if request.properties else None
        is_new = self._insert(names, _NAMESPACE, None, text)
        if not is_new and (request.mode or "").lower() not in {"exist_ok", "existok"}:
            raise ln.NamespaceAlreadyExistsError(f"there is a namespace {_shown(names)} already")
        return ln.CreateNamespaceResponse(properties=request.properties)

    def drop_namespace(self, request: ln.DropNamespaceRequest) -> ln.DropNamespaceResponse:
        """Remove an empty namespace."""
        names = _checked(request.id)
        self._namespace(names)
        inside = [row for row in self._rows() if row["object_id"].startswith(_identity(names) + _DELIMITER)]
        if inside:
            raise ln.NamespaceNotEmptyError(f"the namespace {_shown(names)} has {len(inside)} objects")
        self._delete(names)
        return ln.DropNamespaceResponse()

    def list_tables(self, request: ln.ListTablesRequest) -> ln.ListTablesResponse:
        """Return the tables directly below a namespace, in the order of their names."""
        names = self._children(request.id, _TABLE)
        if not request.id:
            names = sorted({*names, *self._folders()})
        if request.include_declared is False:
            names = [name for name in names if self._is_written([*(request.id or []), name])]
        names, token = _page(names, request.page_token, request.limit)
        return ln.ListTablesResponse(tables=names, page_token=token)

    def describe_table(self, request: ln.DescribeTableRequest) -> ln.DescribeTableResponse:
        """Return location and storage options of a table."""
        names = _checked(request.id)
        location = self._location(names)
        return ln.DescribeTableResponse(
            table=names[-1],
            namespace=names[:-1],
            location=location,
            table_uri=location,
            storage_options=self._options or None,
            is_only_declared=not self._is_written(names) if request.check_declared else None,
        )

    def table_exists(self, request: ln.TableExistsRequest) -> ln.TableExistsResponse:
        """Raise TableNotFoundError unless there is such a table."""
        self._location(_checked(request.id))
        return ln.TableExistsResponse()

    def declare_table(self, request: ln.DeclareTableRequest) -> ln.DeclareTableResponse:
        """Register a table that is about to be written."""
        names = _checked(request.id)
        if request.location is not None:
            raise InvalidInputError(f"a directory namespace chooses locations itself; {request.location!r} was given")
        self._namespace(names[:-1])
        relative = f"{names[0]}{_SUFFIX}" if len(names) == 1 else f"{uuid.uuid4().hex[:8]}_{_identity(names)}"
        if (len(names) == 1 and names[0] in self._folders()) or not self._insert(names, _TABLE, relative, None):
            raise ln.TableAlreadyExistsError(f"there is a table {_shown(names)} already")
        location = self._below(relative)
        open_store(location, self._options).put(_RESERVED, b"")
        return ln.DeclareTableResponse(location=location, storage_options=self._options or None)

    def register_table(self, request: ln.RegisterTableRequest) -> ln.RegisterTableResponse:
        """Register a table that was written; its location is relative to the root, and below it."""
        names = _checked(request.id)
        self._namespace(names[:-1])
        parts = request.location.split("/")
        if request.location.startswith("/") or ":" in request.location or ".." in parts:
            raise InvalidInputError(f"the location {request.location!r} is not relative to the root, or leaves it")
        if not self._insert(names, _TABLE, request.location, None):
            raise ln.TableAlreadyExistsError(f"there is a table {_shown(names)} already")
        return ln.RegisterTableResponse(location=request.location)

    def deregister_table(self, request: ln.DeregisterTableRequest) -> ln.DeregisterTableResponse:
        """Forget a table; its data stay."""
        names = _checked(request.id)
        location = self._location(names)
        if not self._delete(names):
            raise InvalidInputError(
                f"the table {_shown(names)} is a folder without an entry; there is nothing to forget"
            )
        return ln.DeregisterTableResponse(id=names, location=location)

    def drop_table(self, request: ln.DropTableRequest) -> ln.DropTableResponse:
        """Remove a table and its data."""
        names = _checked(request.id)
        location = self._location(names)
        LanceDataset.drop(location, self._options, ignore_not_found=True)
        store = open_store(location, self._options)
        store.delete([_RESERVED])
        remove_empty_folders(store, "")
        self._delete(names)
        return ln.DropTableResponse(id=names, location=location)

    def _below(self, relative: str) -> str:
        return f"{self._root}/{relative}"

    def _rows(self, condition: pc.Expression | None = None) -> list[dict[str, str]]:
        """Return rows of the manifest; none if there is no manifest."""
        try:
            return dataset(self._below(_MANIFEST), storage_options=self._options).to_table(filter=condition).to_pylist()
        except DatasetNotFoundError:
            return []

    def _row(self, names: Sequence[str], kind: str) -> dict[str, str] | None:
        rows = self._rows((pc.field("object_id") == _identity(names)) & (pc.field("object_type") == kind))
        return rows[0] if rows else None

    def _namespace(self, names: Sequence[str] | None) -> dict[str, str] | None:
        """Return the row of a namespace; None for the root, which is always there."""
        if not names:
            return None
        row = self._row(_checked(names), _NAMESPACE)
        if row is None:
            raise ln.NamespaceNotFoundError(f"there is no namespace {_shown(names)}")
        return row

    def _children(self, names: Sequence[str] | None, kind: str) -> list[str]:
        self._namespace(names)
        prefix = "".join(f"{name}{_DELIMITER}" for name in names or ())
        inner = (row["object_id"] for row in self._rows(pc.field("object_type") == kind))
        below = (identity[len(prefix) :] for identity in inner if identity.startswith(prefix))
        return sorted(name for name in below if _DELIMITER not in name)

    def _folders(self) -> set[str]:
        """Names of tables that folders of the root make."""
        scheme, sign, path = self._root.rpartition("://")
        parent, _, folder = path.rpartition("/")
        if sign and not parent:  # a bucket has no folder above it
            names = cast("CloudStore", open_store(self._root, self._options)).root_names()
        else:
            names = open_store(f"{scheme}{sign}{parent}" or "/", self._options).names(folder)
        return {name.rstrip("/")[: -len(_SUFFIX)] for name in names if name.rstrip("/").endswith(_SUFFIX)}

    def _location(self, names: Sequence[str]) -> str:
        row = self._row(names, _TABLE)
        if row is not None:
            return self._below(row["location"])
        if len(names) == 1 and names[0] in self._folders():
            return self._below(f"{names[0]}{_SUFFIX}")
        raise ln.TableNotFoundError(f"there is no table {_shown(names)}")

    def _is_written(self, names: Sequence[str]) -> bool:
        return bool(open_store(self._location(names), self._options).names("_versions"))

    def _insert(self, names: Sequence[str], kind: str, location: str | None, text: str | None) -> bool:
        """Add a row unless there is one with this id; whether it was added."""
        row = {"object_id": _identity(names), "object_type": kind, "location": location, "metadata": text}
        rows = pa.Table.from_pylist([{**row, "base_objects": None}], schema=_SCHEMA)
        address = self._below(_MANIFEST)
        with suppress(DatasetAlreadyExistsError):
            LanceDataset.write_dataset(_SCHEMA.empty_table(), address, storage_options=self._options)
        manifest = dataset(address, storage_options=self._options)
        counts = manifest.merge_insert("object_id").when_not_matched_insert_all().execute(rows)
        return counts["num_inserted_rows"] == 1

    def _delete(self, names: Sequence[str]) -> bool:
        """Remove the row of an object; whether there was one."""
        condition = pc.field("object_id") == _identity(names)
        if not self._rows(condition):
            return False
        manifest = dataset(self._below(_MANIFEST), storage_options=self._options)
        return manifest.delete(condition)["num_deleted_rows"] > 0


def _identity(names: Sequence[str]) -> str:
    return _DELIMITER.join(names)


def _shown(names: Iterable[str]) -> str:
    return repr(".".join(names))


def _checked(names: Sequence[str] | None) -> list[str]:
    """Refuse names that would be another object, or leave the folder."""
    for name in names or ():
        if not name or name in {".", ".."} or any(sign in name for sign in (_DELIMITER, "/", "\\")):
            raise InvalidInputError(
                f"{name!r} cannot be the name of a namespace or table: it is empty, or has / \\ or $"
            )
    if not names:
        raise InvalidInputError("the id is empty; give the names from the root, as a list")
    return list(names)


def _page(names: list[str], token: str | None, limit: int | None) -> tuple[list[str], str | None]:
    """Return the names behind a token, at most so many, and the token of the next page."""
    rest = [name for name in names if token is None or name > token]
    page = rest if limit is None else rest[:limit]
    return page, page[-1] if len(page) < len(rest) else None
