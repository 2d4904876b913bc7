"""Namespaces: tables by name, in a folder or behind a REST service. Names as in pylance."""

from lance_core.common.unsupported import late_names

try:
    from lance_core.namespace.directory import DirectoryNamespace
    from lance_core.namespace.rest import RestNamespace
    from lance_core.namespace.vending import connect
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "lance_namespace":
        raise
    raise ModuleNotFoundError("for namespaces, install lance-dagster[namespace]", name=error.name) from error

__all__ = ["DirectoryNamespace", "RestNamespace", "connect"]

__getattr__ = late_names(__name__)
