"""Dataclasses that are made in a tenth of the time.

`dataclasses` writes and compiles six methods for each frozen class, three for others, and looks three times into each
annotation. Two hundred classes are made when lance_core is imported, which took as long as importing pyarrow. All
methods but one need no code of their own, and `__init__` is compiled when a class has made a few objects without:
compiling takes as long as making thirty so, and most programs make few objects of most classes. The first take of a
process makes objects of 35 classes.
"""

from __future__ import annotations

from collections import namedtuple
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform, overload

if TYPE_CHECKING:
    from collections.abc import Callable
    from inspect import Signature
    from typing import NamedTuple as NamedTuple  # noqa: PLC0414 for others
else:

    class _NamedTupleMeta(type):
        def __new__(cls, name: str, bases: tuple[type, ...], members: dict[str, Any]) -> Any:
            if not bases:
                return super().__new__(cls, name, bases, members)
            names = members["__annotations__"]
            defaults = [members.pop(field) for field in names if field in members]
            made = namedtuple(name, names, defaults=defaults, module=members["__module__"])  # noqa: PYI024 it stands for it
            for member, value in members.items():
                setattr(made, member, value)
            return made

    class NamedTuple(metaclass=_NamedTupleMeta):
        """As `typing.NamedTuple`, which compiles each annotation: two thirds of the time that a class takes."""


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
        made, all_fields = _made(cls, is_frozen=True, kw_only=kw_only, slots=slots)
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
        made, all_fields = _made(cls, is_frozen=False, kw_only=kw_only, slots=True)
        _add(made, cls, all_fields, {"__repr__": _repr})
        return made

    return make if cls is None else make(cls)


def _made(cls: type, *, is_frozen: bool, kw_only: bool, slots: bool) -> tuple[Any, list[Field[Any]]]:
    """Make a class a dataclass without methods; return it and its fields.

    A class of lance_core has fields only. `dataclasses` knows them by marks, which are those of an example.
    """
    members: dict[str, Any] = {"__annotations__": cls.__annotations__, **vars(cls)}
    inherited = [getattr(base, "__dataclass_fields__", {}) for base in reversed(cls.__mro__[1:])]
    all_fields: dict[str, Any] = {name: value for values in inherited for name, value in values.items()}
    example = _example(is_frozen=is_frozen)
    for name, annotation in members["__annotations__"].items():
        default = members.pop(name, MISSING)
        all_fields[name] = made_field = default if isinstance(default, Field) else field(default=default)
        made_field.name, made_field.type = name, annotation
        made_field._field_type = example.__dataclass_fields__["value"]._field_type  # noqa: SLF001 the mark of a field
        made_field.kw_only = kw_only if made_field.kw_only is MISSING else made_field.kw_only
        if not slots and made_field.default is not MISSING:
            members[name] = made_field.default
    given = [value.name for value in all_fields.values() if value.init and not value.kw_only]
    members |= {"__dataclass_fields__": all_fields, "__dataclass_params__": example.__dataclass_params__}
    members |= {"__match_args__": tuple(given), "__qualname__": cls.__qualname__}
    if slots:
        members["__slots__"] = tuple([name for name in all_fields if not any(name in names for names in inherited)])
    for name in ("__dict__", "__weakref__"):
        members.pop(name, None)
    return type(cls)(cls.__name__, cls.__bases__, members), list(all_fields.values())


@cache
def _example(*, is_frozen: bool) -> Any:
    """Return a dataclass without methods; it has a text, because `dataclasses` takes 20 ms to make one."""
    members = {"__annotations__": {"value": object}, "__doc__": "An example."}
    made: Any = dataclass(init=False, repr=False, eq=False)(type("Example", (), members))
    made.__dataclass_params__.frozen = is_frozen
    return made


def _add(made: Any, cls: type, all_fields: list[Field[Any]], methods: dict[str, Any]) -> None:
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
