"""Modules that are imported when they are first used.

A process that loads definitions of Dagster makes IO managers, resources and assets, but reads no table: it needs
neither numpy nor Arrow, which take longer to import than lance_dagster.
"""

from importlib import import_module
from typing import Any


class LateModule:
    """Stands for a module, whose names it has.

    Args:
        name: Name of the module.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        value = getattr(import_module(self._name), name)
        setattr(self, name, value)
        return value
