"""A namespace behind a service that speaks the REST protocol of Lance namespaces."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import lance_namespace as ln
from lance_namespace_urllib3_client.api.namespace_api import NamespaceApi
from lance_namespace_urllib3_client.api.table_api import TableApi
from lance_namespace_urllib3_client.api_client import ApiClient
from lance_namespace_urllib3_client.configuration import Configuration
from lance_namespace_urllib3_client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from lance_core.common.unsupported import refuse_given, with_refused
from lance_core.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Callable

_HEADER = "header."
_UNAUTHORIZED, _FORBIDDEN = 401, 403


@with_refused
class RestNamespace(ln.LanceNamespace):
    """A namespace behind a REST service.

    Args:
        context_provider: Not supported.
        properties: ``uri``: address of the service. ``delimiter``: between the names of a table in requests, ``$`` if
            left out. ``header.NAME``: a header of all requests, such as ``header.Authorization``.

    Raises:
        InvalidInputError: ``uri`` is missing, or a property is not known.

    Examples:
        >>> RestNamespace(uri="http://localhost:4099").namespace_id()
        "RestNamespace(uri='http://localhost:4099', delimiter='$')"
    """

    def __init__(self, context_provider: Any = None, **properties: str) -> None:
        refuse_given("RestNamespace", context_provider=context_provider)
        headers = {name[len(_HEADER) :]: value for name, value in properties.items() if name.startswith(_HEADER)}
        unknown = {name for name in properties if not name.startswith(_HEADER)} - {"uri", "delimiter"}
        if unknown or "uri" not in properties:
            raise InvalidInputError(
                f"a REST namespace takes uri, delimiter and header.NAME; {', '.join(sorted(unknown)) or 'uri'} "
                f"{'is not known' if unknown else 'is missing'}"
            )
        self._properties = dict(properties)
        self._uri, self._delimiter = properties["uri"].rstrip("/"), properties.get("delimiter", "$")
        client = ApiClient(Configuration(host=self._uri))
        for name, value in headers.items():
            client.set_default_header(name, value)
        self._tables, self._namespaces = TableApi(client), NamespaceApi(client)

    def __reduce__(self) -> tuple[Callable[..., RestNamespace], tuple[()]]:
        return partial(RestNamespace, **self._properties), ()

    def spec(self) -> dict[str, Any]:
        """Return the arguments of `lance_core.namespace.connect` that make this namespace."""
        return {"impl": "rest", "properties": self._properties}

    def namespace_id(self) -> str:
        """Return a text that names the service."""
        return f"RestNamespace(uri={self._uri!r}, delimiter={self._delimiter!r})"

    def list_namespaces(self, request: ln.ListNamespacesRequest) -> ln.ListNamespacesResponse:
        """Return the namespaces directly below one."""
        return self._ask(self._namespaces.list_namespaces, request, page_token=request.page_token, limit=request.limit)

    def describe_namespace(self, request: ln.DescribeNamespaceRequest) -> ln.DescribeNamespaceResponse:
        """Return the properties of a namespace."""
        return self._ask(self._namespaces.describe_namespace, request, request)

    def create_namespace(self, request: ln.CreateNamespaceRequest) -> ln.CreateNamespaceResponse:
        """Create a namespace."""
        return self._ask(self._namespaces.create_namespace, request, request)

    def drop_namespace(self, request: ln.DropNamespaceRequest) -> ln.DropNamespaceResponse:
        """Remove an empty namespace."""
        return self._ask(self._namespaces.drop_namespace, request, request)

    def namespace_exists(self, request: ln.NamespaceExistsRequest) -> ln.NamespaceExistsResponse:
        """Raise an error unless there is such a namespace."""
        self._ask(self._namespaces.namespace_exists, request, request)
        return ln.NamespaceExistsResponse()

    def list_tables(self, request: ln.ListTablesRequest) -> ln.ListTablesResponse:
        """Return the tables directly below a namespace."""
        return self._ask(self._tables.list_tables, request, page_token=request.page_token, limit=request.limit)

    def describe_table(self, request: ln.DescribeTableRequest) -> ln.DescribeTableResponse:
        """Return location and storage options of a table."""
        return self._ask(self._tables.describe_table, request, request)

    def declare_table(self, request: ln.DeclareTableRequest) -> ln.DeclareTableResponse:
        """Register a table that is about to be written."""
        return self._ask(self._tables.declare_table, request, request)

    def register_table(self, request: ln.RegisterTableRequest) -> ln.RegisterTableResponse:
        """Register a table that was written."""
        return self._ask(self._tables.register_table, request, request)

    def table_exists(self, request: ln.TableExistsRequest) -> ln.TableExistsResponse:
        """Raise an error unless there is such a table."""
        self._ask(self._tables.table_exists, request, request)
        return ln.TableExistsResponse()

    def drop_table(self, request: ln.DropTableRequest) -> ln.DropTableResponse:
        """Remove a table and its data."""
        return self._ask(self._tables.drop_table, request)

    def deregister_table(self, request: ln.DeregisterTableRequest) -> ln.DeregisterTableResponse:
        """Forget a table; its data stay."""
        return self._ask(self._tables.deregister_table, request, request)

    def rename_table(self, request: ln.RenameTableRequest) -> ln.RenameTableResponse:
        """Give a table another name."""
        return self._ask(self._tables.rename_table, request, request)

    def _ask(self, call: Callable[..., Any], request: Any, *body: Any, **parameters: Any) -> Any:
        identity = self._delimiter.join(request.id or []) or self._delimiter
        try:
            return call(identity, *body, delimiter=self._delimiter, **parameters)
        except ApiException as error:
            raise _typed(error) from error
        except HTTPError as error:
            raise ln.ServiceUnavailableError(f"{self._uri} does not answer: {error}") from error


def _typed(error: ApiException) -> Exception:
    """Return the error that the service means."""
    try:
        answer = json.loads(error.body or "{}")
    except ValueError:
        answer = {}
    answer = answer if isinstance(answer, dict) else {}
    message = answer.get("error") or error.reason or f"the service answered {error.status}"
    if "code" in answer:
        return ln.from_error_code(int(answer["code"]), message)
    if error.status in {_UNAUTHORIZED, _FORBIDDEN}:
        return ln.PermissionDeniedError(message)
    return ln.ServiceUnavailableError(f"{message} (status {error.status})")
