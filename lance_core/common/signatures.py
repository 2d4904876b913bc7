"""Signatures of functions that share options.

Several functions take the same options and pass them on. Such options are one `typing.TypedDict`, and the functions
take them as ``**options: Unpack[ThatDict]``: type checkers and editors then know each name and type. At runtime Python
knows only ``**options``, so `with_options` writes the names into the signature that `inspect.signature`, `help` and
notebooks show.
"""

from __future__ import annotations

from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_Function = TypeVar("_Function", bound="Callable[..., Any]")


def with_options(options: type, *, defaults_of: Callable[..., Any] | None = None) -> Callable[[_Function], _Function]:
    """Make a decorator that shows the keys of a TypedDict as keyword arguments of a function.

    The function itself is returned, so calls cost nothing more.

    Args:
        options: The TypedDict that the function unpacks.
        defaults_of: The function that the options are passed on to, if some of its defaults are not None.
    """

    def decorate(function: _Function) -> _Function:
        whole = signature(function)
        passed_on = {} if defaults_of is None else signature(defaults_of).parameters
        defaults = {name: parameter.default for name, parameter in passed_on.items()}
        shown = _expanded(whole.parameters.values(), options.__annotations__, defaults)
        vars(function)["__signature__"] = whole.replace(parameters=list(shown))
        return function

    return decorate


def check_options(function: str, options: type, given: Mapping[str, Any]) -> None:
    """Refuse keywords that a TypedDict does not have, with the error that Python raises for them.

    Args:
        function: Name of the function, for the message.
        options: The TypedDict that the function unpacks.
        given: What the caller gave.

    Raises:
        TypeError: A keyword is unknown.
    """
    for name in given:
        if name not in options.__annotations__:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")


def _expanded(parameters: Any, annotations: Mapping[str, Any], defaults: Mapping[str, Any]) -> Iterator[Parameter]:
    for parameter in parameters:
        if parameter.kind is not Parameter.VAR_KEYWORD:
            yield parameter
            continue
        for name, annotation in annotations.items():
            text = getattr(annotation, "__forward_arg__", annotation)
            yield Parameter(name, Parameter.KEYWORD_ONLY, default=defaults.get(name), annotation=text)
