"""Signatures of functions that share options.

Several functions take the same options and pass them on. Such options are one `typing.TypedDict`, and the functions
take them as ``**options: Unpack[ThatDict]``: type checkers and editors then know each name and type. At runtime Python
knows only ``**options``, so `with_options` writes the names into the signature that `inspect.signature`, `help` and
notebooks show.
"""

from __future__ import annotations

from importlib import import_module
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import MappingProxyType

_Function = TypeVar("_Function", bound="Callable[..., Any]")


def with_options(
    options: type | str, *, defaults_of: Callable[..., Any] | str | None = None
) -> Callable[[_Function], _Function]:
    """Make a decorator that shows the keys of a TypedDict as keyword arguments of a function.

    The function itself is returned, so calls cost nothing more.

    Args:
        options: The TypedDict that the function unpacks, or ``module:name`` of one to import when somebody asks.
        defaults_of: The function that the options are passed on to, if some of its defaults are not None; likewise.
    """

    def decorate(function: _Function) -> _Function:
        vars(function)["__signature__"] = _LateSignature(signature(function), options, defaults_of)
        return function

    return decorate


class _LateSignature(Signature):
    """A signature whose parameters are made when somebody asks for them, which hardly a program does."""

    __slots__ = ("_defaults_of", "_options", "_shown", "_whole")

    def __init__(self, whole: Signature, options: type | str, defaults_of: Callable[..., Any] | str | None) -> None:
        super().__init__(return_annotation=whole.return_annotation)
        self._whole, self._options, self._defaults_of = whole, options, defaults_of
        self._shown: Signature | None = None

    @property
    def parameters(self) -> MappingProxyType[str, Parameter]:
        """Parameters of the function, with the options in place of ``**options``."""
        if self._shown is None:
            defaults_of = _imported(self._defaults_of)
            passed_on = {} if defaults_of is None else signature(defaults_of).parameters
            defaults = {name: parameter.default for name, parameter in passed_on.items()}
            shown = _expanded(self._whole.parameters.values(), _imported(self._options).__annotations__, defaults)
            self._shown = self._whole.replace(parameters=list(shown))
        return self._shown.parameters

    def replace(self, **changes: Any) -> Signature:
        """Return a signature with other parameters or another annotation."""
        changes.setdefault("parameters", list(self.parameters.values()))
        return self._whole.replace(**changes)


def _imported(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    module, _, name = value.partition(":")
    return getattr(import_module(module), name)


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
