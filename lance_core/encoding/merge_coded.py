"""One page of values that have places in several dictionaries: items are compared, values are not looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lance_core.encoding.arrow_values import take_values, to_values
from lance_core.encoding.codecs import dictionary
from lance_core.encoding.kernels import starts_of
from lance_core.encoding.layouts import mini_block
from lance_core.encoding.layouts.page import Decoded
from lance_core.encoding.layouts.small_page import MAX_VALUES
from lance_core.encoding.shred import Nesting, build_levels
from lance_core.encoding.values import FixedListValues, FixedValues, VariableValues

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from lance_core.encoding.coded import Coded
    from lance_core.encoding.layouts.page import EncodedPage
    from lance_core.encoding.options import PageOptions
    from lance_core.encoding.repdef import Mask


def encode_coded(
    parts: Sequence[Coded], options: PageOptions, *, most_bytes: float, may_lack: bool
) -> EncodedPage | None:
    """A page of a leaf with nothing around it.

    Args:
        parts: Its values, one after the other.
        options: How to write.
        may_lack: Some items may be no value's; they are left out.
        most_bytes: What the values take at most with a dictionary, packed, if that is to be worth it.

    Returns:
        The page; None if the values should be looked at: they are few, all alike, or have too many items.

    Raises:
        CorruptDataError: A place where there is no item.
    """
    count = sum(map(len, parts))
    items = to_values(pa.concat_arrays([one.items for one in parts]))
    if count <= MAX_VALUES or isinstance(items, FixedListValues):
        return None
    built = dictionary.build(items, most=count // options.dict_divisor)
    if built is None:
        return None
    places, merged = _moved(parts, built[0]), built[1]
    if may_lack:
        places, merged = _used(places, merged)
    if _packed_bytes(count, merged) > most_bytes:
        return None
    validity = _joined_validity(parts)
    kept = places if validity is None else places[validity]
    if not len(kept) or int(kept.min()) == int(kept.max()):
        return None
    nesting = Nesting(length=count, is_null=None if validity is None else ~validity)
    decoded = Decoded(levels=build_levels([nesting]), values=merged, num_slots=count)
    return mini_block.encode(decoded, (FixedValues(places), merged), options)


def _moved(parts: Sequence[Coded], targets: FixedValues) -> npt.NDArray[Any]:
    """Places of all values, where each item, of all parts one after the other, has moved to another place."""
    bounds = starts_of(np.array([len(one.items) for one in parts])).tolist()
    moved: list[npt.NDArray[Any]] = []
    for one, low, high in zip(parts, bounds, bounds[1:], strict=False):
        found = take_values(FixedValues(targets.data[low:high]), one.places)
        assert isinstance(found, FixedValues)  # noqa: S101 - as what was taken from
        moved.append(found.data)
    return moved[0] if len(moved) == 1 else np.concatenate(moved)


def _used(
    places: npt.NDArray[Any], items: FixedValues | VariableValues
) -> tuple[npt.NDArray[Any], FixedValues | VariableValues]:
    """Without items that no value has."""
    is_used = np.zeros(len(items), np.bool_)
    is_used[places] = True
    if is_used.all():
        return places, items
    numbers = (starts_of(is_used)[:-1]).astype(dictionary.index_dtype(int(is_used.sum())))
    moved = take_values(FixedValues(numbers), places)
    kept = take_values(items, np.flatnonzero(is_used))
    assert isinstance(moved, FixedValues)  # noqa: S101 - as what was taken from
    assert isinstance(kept, (FixedValues, VariableValues))  # noqa: S101 - likewise
    return moved.data, kept


def _packed_bytes(count: int, items: FixedValues | VariableValues) -> float:
    item_bytes = items.data.nbytes + (items.offsets.nbytes if isinstance(items, VariableValues) else 0)
    return count * max(1, (len(items) - 1).bit_length()) / 8 + item_bytes


def _joined_validity(parts: Sequence[Coded]) -> Mask | None:
    """False for null; None if nothing is null."""
    if all(one.validity is None for one in parts):
        return None
    masks = [np.ones(len(one), np.bool_) if one.validity is None else one.validity for one in parts]
    joined = masks[0] if len(masks) == 1 else np.concatenate(masks)
    return None if joined.all() else joined
