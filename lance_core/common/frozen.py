"""Dataclasses that are made in a fourth of the time.

`dataclasses` writes and compiles six methods for each frozen class, three for others. Two hundred classes are made when
lance_core is imported, which took as long as importing pyarrow. All methods but one need no code of their own, and
`__init__` is compiled when a class has made a few objects without: compiling takes as long as making thirty so, and
most programs make few objects of most classes. The first take of a process makes objects of 35 classes.
"""

from __future__ import annotations

from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform, overload

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import Field
    from inspect import Signature

_Class = TypeVar("_Class", bound=type)
_Value = TypeVar("_Value")


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

    def make(cls: type) -> Any:
        made, all_fields = _made(cls, kw_only=kw_only, slots=slots)
        made.__dataclass_params__.frozen = True
        compared = _getter([field.name for field in all_fields if field.compare])
        methods = _PICKLED_FROZEN if slots else _FROZEN
        _add(made, cls, all_fields, {**methods, "_compared": staticmethod(compared)})
        return made

    return make if cls is None else make(cls)


@overload
def mutable(cls: _Class, /) -> _Class: ...


@overload
def mutable(*, kw_only: bool = False) -> Callable[[_Class], _Class]: ...


@dataclass_transform(eq_default=False, field_specifiers=(field,))
def mutable(cls: Any = None, /, *, kw_only: bool = False) -> Any:
    """Make a class a dataclass, as ``@dataclass(slots=True, eq=False)`` does.

    Args:
        cls: The class.
        kw_only: Whether fields can be given by their names only.
    """

    def make(cls: type) -> Any:
        made, all_fields = _made(cls, kw_only=kw_only, slots=True)
        _add(made, cls, all_fields, {"__repr__": _repr})
        return made

    return make if cls is None else make(cls)


def _made(cls: type, *, kw_only: bool, slots: bool) -> tuple[Any, tuple[Field[Any], ...]]:
    """Make a class a dataclass without methods; return it and its fields.

    `dataclasses` looks three times into each annotation that is a text, which is a third of its time. A class of
    lance_core has fields only, so it is shown types, and given its annotations back.
    """
    annotations = vars(cls).get("__annotations__", {})
    cls.__annotations__ = dict.fromkeys(annotations, object)
    made: Any = dataclass(init=False, slots=slots, kw_only=kw_only, repr=False, eq=False)(cls)
    made.__annotations__ = annotations
    all_fields = fields(made)
    for field_ in all_fields:
        if field_.name in annotations:
            field_.type = annotations[field_.name]
    return made, all_fields


def _add(made: Any, cls: type, all_fields: tuple[Field[Any], ...], methods: dict[str, Any]) -> None:
    """Add methods that the class does not have itself, and what all of them share."""
    shown = tuple([field.name for field in all_fields if field.repr])
    made.__signature__ = _SIGNATURE
    for name, member in {**methods, "_shown": shown, "__init__": _late_init(made)}.items():
        if cls.__dict__.get(name) is None:  # a class with an __eq__ of its own has None for __hash__
            setattr(made, name, member)


_MADE_BY_HAND = 16


def _late_init(made: Any) -> Callable[..., None]:
    """Return an ``__init__`` that sets the fields of the first objects, then replaces itself by a compiled one."""
    made_by_hand = 0
    given_fields: list[Field[Any]] | None = None

    def __init__(self: Any, *given: Any, **named: Any) -> None:  # noqa: N807 it becomes one
        nonlocal made_by_hand, given_fields
        made_by_hand += 1
        if given_fields is None:
            given_fields = _given(made)
        values = _values(given_fields, given, named) if made_by_hand <= _MADE_BY_HAND else None
        if values is None:
            made.__init__ = _compiled_init(made)
            made.__init__(self, *given, **named)
            return
        for field_, value in zip(given_fields, values, strict=True):
            object.__setattr__(self, field_.name, value)
        if hasattr(made, "__post_init__"):
            self.__post_init__()

    return __init__


def _values(given_fields: list[Field[Any]], given: tuple[Any, ...], named: dict[str, Any]) -> list[Any] | None:
    """Return the values of the fields; None if the arguments do not fit, of which the compiled ``__init__`` tells."""
    values: list[Any] = []
    num_places, num_names = 0, 0
    for field_ in given_fields:
        name = field_.name
        if not field_.kw_only and num_places < len(given):
            values.append(given[num_places])
            num_places += 1
        elif name in named:
            values.append(named[name])
            num_names += 1
        elif field_.default is not MISSING:
            values.append(field_.default)
        elif field_.default_factory is not MISSING:
            values.append(field_.default_factory())
        else:
            return None
    return values if (num_places, num_names) == (len(given), len(named)) else None


def _compiled_init(made: Any) -> Callable[..., None]:
    names: dict[str, Any] = {"_set": object.__setattr__, "_unset": MISSING}
    body: list[str] = []
    parameters: dict[bool, list[str]] = {False: [], True: []}
    for field_ in _given(made):
        default, value = "", field_.name
        if field_.default is not MISSING:
            default, names[f"_of_{field_.name}"] = f"=_of_{field_.name}", field_.default
        elif field_.default_factory is not MISSING:
            default, names[f"_of_{field_.name}"] = "=_unset", field_.default_factory
            value = f"_of_{field_.name}() if {field_.name} is _unset else {field_.name}"
        parameters[bool(field_.kw_only)].append(field_.name + default)
        is_frozen = made.__dataclass_params__.frozen
        body.append(f"_set(self, {field_.name!r}, {value})" if is_frozen else f"self.{field_.name} = {value}")
    if hasattr(made, "__post_init__"):
        body.append("self.__post_init__()")
    named = ["*", *parameters[True]] if parameters[True] else []
    head = ", ".join(["self", *parameters[False], *named])
    lines = "".join([f"\n    {line}" for line in body or ["pass"]])
    exec(f"def __init__({head}) -> None:{lines}", names)  # noqa: S102 names of fields are names; dataclasses do so
    compiled = names["__init__"]
    compiled.__qualname__ = f"{made.__qualname__}.__init__"
    compiled.__annotations__ = {field.name: field.type for field in _given(made)}
    return compiled


def _given(made: Any) -> list[Field[Any]]:
    return [field for field in fields(made) if field.init]


class _SignatureOfInit:
    """Descriptor that `inspect.signature` and interactive help read."""

    def __get__(self, _instance: object, made: Any) -> Signature:
        from inspect import signature  # noqa: PLC0415 rarely asked for

        whole = signature(_compiled_init(made))
        return whole.replace(parameters=list(whole.parameters.values())[1:])


_SIGNATURE = _SignatureOfInit()


_FIELDS: dict[type, tuple[list[str], Callable[[Any], tuple[Any, ...]]]] = {}


def replace(value: _Value, /, **changes: object) -> _Value:
    """Copy a value with other values of some fields, as `dataclasses.replace`, which asks for each field by itself."""
    made: Any = type(value)
    if made not in _FIELDS:
        names = [field.name for field in fields(made)]
        _FIELDS[made] = names, _getter(names)
    names, get = _FIELDS[made]
    return made(**{**dict(zip(names, get(value), strict=True)), **changes})


def _getter(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    if not names:
        return lambda _: ()
    get = attrgetter(*names)
    return get if len(names) > 1 else lambda value: (get(value),)


def _repr(self: Any) -> str:
    shown = ", ".join([f"{name}={getattr(self, name)!r}" for name in self._shown])
    return f"{type(self).__qualname__}({shown})"


def _eq(self: Any, other: object) -> Any:
    return self._compared(self) == self._compared(other) if type(other) is type(self) else NotImplemented


def _hash(self: Any) -> int:
    return hash(self._compared(self))


def _refuse(_self: Any, name: str, *_value: Any) -> None:
    raise FrozenInstanceError(f"{name!r} of a frozen value cannot be changed")


def _state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in fields(self)]


def _restore(self: Any, state: list[Any]) -> None:
    for field_, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, field_.name, value)


_FROZEN = {"__repr__": _repr, "__eq__": _eq, "__hash__": _hash, "__setattr__": _refuse, "__delattr__": _refuse}
_PICKLED_FROZEN = {**_FROZEN, "__getstate__": _state, "__setstate__": _restore}
