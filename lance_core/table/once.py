"""A value that an object works out when it is first asked for.

`functools.cached_property` of Python 3.11 holds one lock for all objects of a class while it works: threads that read
different fragments would wait for each other's requests. Here two threads may both work out the same value, once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")


class once(Generic[_T]):  # noqa: N801 used like property
    """Turns a method without arguments into an attribute that is worked out once.

    Args:
        method: Works it out.
    """

    def __init__(self, method: Callable[[Any], _T]) -> None:
        self._method = method
        self._name = method.__name__
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, owner: None, kind: type[Any]) -> once[_T]: ...
    @overload
    def __get__(self, owner: object, kind: type[Any] | None = None) -> _T: ...
    def __get__(self, owner: object | None, kind: type[Any] | None = None) -> once[_T] | _T:
        if owner is None:
            return self
        value = self._method(owner)
        owner.__dict__[self._name] = value  # found before this descriptor from now on
        return value
