"""Values do what frozen dataclasses do."""

import copy
import inspect
import pickle
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, is_dataclass, replace

import pytest

from lance_core.common.frozen import NamedTuple, frozen, mutable


@frozen(kw_only=True)
class Named:
    number: int
    words: tuple[str, ...] = ()
    secret: str = field(default="hidden", repr=False)
    note: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    number: int
    words: tuple[str, ...] = ()
    secret: str = field(default="hidden", repr=False)
    note: str = field(default="", compare=False)


@frozen
class Single:
    items: list[int]


class Plain:
    items: list[int]


@frozen
class Nothing:
    """Has no fields."""


@frozen(slots=False)
class Own:  # noqa: PLW1641 `frozen` makes it
    number: int

    def __eq__(self, other):
        return True

    def __repr__(self):
        return "own"


@pytest.mark.parametrize("kind", [Named, Judge])
def test_as_dataclasses(kind):
    one = kind(number=1, words=("a",))
    assert one == kind(number=1, words=("a",), note="other")
    assert hash(one) == hash(kind(number=1, words=("a",), note="other"))
    assert one != kind(number=1, words=("b",))
    assert one != kind(number=1, words=("a",), secret="told")  # noqa: S106 an example
    assert one != (1, ("a",), "hidden")
    assert repr(one) == f"{kind.__name__}(number=1, words=('a',), note='')"
    assert replace(one, number=2) == kind(number=2, words=("a",))
    assert pickle.loads(pickle.dumps(one)) == copy.deepcopy(one) == one  # noqa: S301 our own
    with pytest.raises(FrozenInstanceError):
        one.number = 2
    with pytest.raises(FrozenInstanceError):
        del one.number
    with pytest.raises(TypeError):
        kind(1)
    assert not hasattr(one, "__dict__")


def test_a_class_compiles_nothing_for_its_first_objects():
    """Two hundred classes are made at import; most programs need few of them, and few objects of most of those."""

    @frozen
    class Late:
        number: int
        words: list[str] = field(default_factory=list)

    waiting = Late.__init__
    assert waiting.__code__.co_filename == frozen.__code__.co_filename  # not compiled from text
    assert Late(1) == Late(number=1, words=[])
    assert Late(1).words is not Late(1).words
    assert (Late(2, words=["a"]).number, Late(2, ["a"]).words) == (2, ["a"])
    assert Late.__init__ is waiting
    for _ in range(16):
        assert Late(1) == Late(number=1, words=[])
    assert Late.__init__ is not waiting
    assert Late.__init__.__code__.co_varnames == ("self", "number", "words")
    with pytest.raises(TypeError, match=r"Late.__init__\(\) missing 1 required positional argument: 'number'"):
        Late()


@pytest.mark.parametrize(
    ("given", "named", "told"),
    [
        ((), {}, "missing 1 required positional argument: 'number'"),
        ((1, 2, 3), {}, "takes from 2 to 3 positional arguments but 4 were given"),
        ((1,), {"number": 1}, "got multiple values for argument 'number'"),
        ((1,), {"count": 1}, "got an unexpected keyword argument 'count'"),
    ],
)
def test_wrong_arguments_of_the_first_object_are_told(given, named, told):
    @frozen
    class First:
        number: int
        double: int = 0

    with pytest.raises(TypeError, match=rf"First.__init__\(\) {told}"):
        First(*given, **named)


def test_signatures_are_those_of_dataclasses():
    for kind, judge in ((Named, Judge), (Single, dataclass(Plain))):
        assert inspect.signature(kind).parameters == inspect.signature(judge).parameters


@frozen
class Checked:
    number: int
    double: int = 0

    def __post_init__(self):
        object.__setattr__(self, "double", 2 * self.number)


def test_values_are_finished_after_they_are_made():
    assert Checked(2).double == Checked(number=2).double == 4
    assert replace(Checked(2), number=3).double == 6


@frozen(kw_only=True)
class Wider(Named):
    """Has more fields, and another default of one."""

    words: tuple[str, ...] = ("a",)
    size: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class WiderJudge(Judge):
    words: tuple[str, ...] = ("a",)
    size: int = 3


def test_fields_are_inherited():
    def told(kind):
        return [(one.name, one.type, one.default, one.kw_only, one.repr, one.compare) for one in fields(kind)]

    assert told(Wider) == told(WiderJudge)
    assert asdict(Wider(number=1)) == asdict(WiderJudge(number=1))
    assert (Wider.__slots__, Wider.__match_args__) == (WiderJudge.__slots__, WiderJudge.__match_args__)
    assert is_dataclass(Wider)
    assert not hasattr(Wider(number=1), "__dict__")


def test_classes_keep_their_place():
    class Outer:
        @frozen
        class Inner:
            number: int

    assert Outer.Inner.__qualname__ == "test_classes_keep_their_place.<locals>.Outer.Inner"


def test_kinds_are_told_apart():
    assert Named(number=1) != Judge(number=1)


def test_values_without_hash():
    assert Single([1]) == Single([1]) != Single([2])
    with pytest.raises(TypeError, match="unhashable"):
        hash(Single([1]))


def test_values_without_fields():
    assert Nothing() == Nothing()
    assert {Nothing(): 1}[Nothing()] == 1
    assert repr(Nothing()) == "Nothing()"


def test_methods_of_the_class_count():
    assert Own(1) == Own(2)
    assert repr(Own(1)) == "own"
    assert hash(Own(1)) == hash(Own(1))
    assert vars(Own(1)) == {"number": 1}


def test_positions_match():
    match Single([1]):
        case Single(items):
            assert items == [1]


def test_fields_of_mutable_classes_can_be_changed():
    @mutable(kw_only=True)
    class Open:
        """An open thing."""

        number: int
        words: list[str] = field(default_factory=list)
        later: int = field(init=False)

        def __post_init__(self):
            self.later = self.number + 1

    for number in range(20):  # the first ones are made by hand
        one = Open(number=number)
        one.number += 1
        one.words.append("a")
        assert repr(one).endswith(f"Open(number={number + 1}, words=['a'], later={number + 1})")
        assert one != Open(number=number + 1, words=["a"])
        assert not hasattr(one, "__dict__")
    assert list(inspect.signature(Open).parameters) == ["number", "words"]
    with pytest.raises(TypeError):
        Open(1)


class Pair(NamedTuple):
    """Two things."""

    first: int
    second: "no.such.Type" = 2  # noqa: F821 annotations are not looked at

    @property
    def total(self):
        """Their sum."""
        return self.first + self.second


def test_named_tuples_are_those_of_typing():
    assert Pair(1) == (1, 2)
    assert (Pair(1).total, Pair(1)._replace(second=5).total) == (3, 6)
    assert repr(Pair(1)) == "Pair(first=1, second=2)"
    assert (Pair._fields, Pair._field_defaults, Pair.__doc__) == (("first", "second"), {"second": 2}, "Two things.")
    assert pickle.loads(pickle.dumps(Pair(1))) == Pair(1)  # noqa: S301 our own
