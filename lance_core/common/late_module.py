"""Modules that are imported when they are first used.

A process that loads definitions of Dagster makes IO managers, resources and assets, but reads no table: it needs
neither numpy nor Arrow, which take longer to import than lance_dagster.
"""

from importlib import import_module
from typing import Any


class LateModule:
    """Stands for a module or an object in it, whose names it has.

    Args:
        name: Name of the module.
        inside: Name of the object.
    """

    def __init__(self, name: str, inside: str | None = None) -> None:
        self._name = name
        self._inside = inside

    def __getattr__(self, name: str) -> Any:
        module = import_module(self._name)
        value = getattr(module if self._inside is None else getattr(module, self._inside), name)
        setattr(self, name, value)
        return value


class LateMethods:
    """Stands for a module in the body of a class: its functions become methods, imported when they are asked for.

    Args:
        name: Name of the module.
    """

    def __init__(self, name: str) -> None:
        self._module = name

    def __getattr__(self, name: str) -> Any:
        return _LateMethod(self._module, name)


class _LateMethod:
    """A method that is not imported yet; the class gets the function in its place."""

    def __init__(self, module: str, name: str) -> None:
        self._origin = module, name
        self._owner: tuple[type, str] | None = None

    def __set_name__(self, owner: type, name: str) -> None:
        self._owner = owner, name

    @property
    def __wrapped__(self) -> Any:
        module, name = self._origin
        return getattr(import_module(module), name)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        method = self.__wrapped__
        if self._owner is not None:
            setattr(*self._owner, method)
        return method.__get__(instance, owner)

    def __call__(self, *given: Any, **named: Any) -> Any:
        """Call it as a class method or a static one, which takes the function as it is."""
        return self.__wrapped__(*given, **named)
