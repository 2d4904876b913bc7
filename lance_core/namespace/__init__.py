"""Namespaces: tables by name, in a folder or behind a REST service. Names as in pylance."""

from lance_core.namespace.directory import DirectoryNamespace
from lance_core.namespace.rest import RestNamespace
from lance_core.unsupported import late_names

__all__ = ["DirectoryNamespace", "RestNamespace"]

__getattr__ = late_names(__name__)
