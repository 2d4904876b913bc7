"""Values do what frozen dataclasses do."""

import copy
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, replace

import pytest

from lance_core.frozen import frozen


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
