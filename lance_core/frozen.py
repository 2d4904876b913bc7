"""Frozen values: dataclasses that are made in two thirds of the time.

`dataclasses` writes and compiles six methods for each frozen class. Two hundred of them are made when lance_core is
imported, which took as long as importing pyarrow. Three of the methods need no code of their own.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform, overload

if TYPE_CHECKING:
    from collections.abc import Callable

_Class = TypeVar("_Class", bound=type)


@overload
def frozen(cls: _Class, /) -> _Class: ...


@overload
def frozen(*, kw_only: bool = False, slots: bool = True) -> Callable[[_Class], _Class]: ...


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: Any = None, /, *, kw_only: bool = False, slots: bool = True) -> Any:
    """Make a class a dataclass, as ``@dataclass(frozen=True, slots=True)`` does.

    Args:
        cls: The class.
        kw_only: Whether fields can be given by their names only.
        slots: Whether its objects have room for the fields only.
    """

    def make(cls: type) -> type:
        made = dataclass(frozen=True, slots=slots, kw_only=kw_only, repr=False, eq=False)(cls)
        compared = _getter([one.name for one in fields(made) if one.compare])
        shown = tuple([one.name for one in fields(made) if one.repr])
        for name, member in {**_METHODS, "_compared": staticmethod(compared), "_shown": shown}.items():
            if cls.__dict__.get(name) is None:  # a class with an __eq__ of its own has None for __hash__
                setattr(made, name, member)
        return made

    return make if cls is None else make(cls)


def _getter(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    if not names:
        return lambda _: ()
    get = attrgetter(*names)
    return get if len(names) > 1 else lambda one: (get(one),)


def _repr(self: Any) -> str:
    shown = ", ".join([f"{name}={getattr(self, name)!r}" for name in self._shown])
    return f"{type(self).__qualname__}({shown})"


def _eq(self: Any, other: object) -> Any:
    return self._compared(self) == self._compared(other) if type(other) is type(self) else NotImplemented


def _hash(self: Any) -> int:
    return hash(self._compared(self))


_METHODS = {"__repr__": _repr, "__eq__": _eq, "__hash__": _hash}
