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
from lance_core.encoding.layouts.small_page import SMALL_VALUES
from lance_core.encoding.shred import Nesting, build_levels
from lance_core.encoding.values import FixedListValues, FixedValues, VariableValues

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from lance_core.encoding.dictionary_encoded import DictionaryEncoded
    from lance_core.encoding.layouts.page import EncodedPage
    from lance_core.encoding.options import PageOptions
    from lance_core.encoding.repdef import Mask


def encode_merged(
    parts: Sequence[DictionaryEncoded], options: PageOptions, *, most_bytes: float, may_lack: bool
) -> EncodedPage | None:
    """Return a page of a leaf with nothing around it.

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
    items = to_values(pa.concat_arrays([part.items for part in parts]))
    if count <= SMALL_VALUES or isinstance(items, FixedListValues):
        return None
    built = dictionary.build(items, most=count // options.dict_divisor)
    if built is None:
        return None
    item_indices, merged = _moved(parts, built[0]), built[1]
    if may_lack:
        item_indices, merged = _used(item_indices, merged)
    if _packed_bytes(count, merged) > most_bytes:
        return None
    validity = _joined_validity(parts)
    visible_indices = item_indices if validity is None else item_indices[validity]
    if not len(visible_indices) or int(visible_indices.min()) == int(visible_indices.max()):
        return None
    nesting = Nesting(length=count, is_null=None if validity is None else ~validity)
    decoded = Decoded(levels=build_levels([nesting]), values=merged, num_slots=count)
    return mini_block.encode(decoded, (FixedValues(item_indices), merged), options)


def _moved(parts: Sequence[DictionaryEncoded], targets: FixedValues) -> npt.NDArray[Any]:
    """Places of all values, where each item, of all parts one after the other, has moved to another place."""
    bounds = starts_of(np.array([len(part.items) for part in parts])).tolist()
    moved: list[npt.NDArray[Any]] = []
    for part, low, high in zip(parts, bounds, bounds[1:], strict=False):
        moved_indices = take_values(FixedValues(targets.data[low:high]), part.indices)
        assert isinstance(moved_indices, FixedValues)  # noqa: S101 - as what was taken from
        moved.append(moved_indices.data)
    return moved[0] if len(moved) == 1 else np.concatenate(moved)


def _used(
    item_indices: npt.NDArray[Any], items: FixedValues | VariableValues
) -> tuple[npt.NDArray[Any], FixedValues | VariableValues]:
    """Without items that no value has."""
    is_used = np.zeros(len(items), np.bool_)
    is_used[item_indices] = True
    if is_used.all():
        return item_indices, items
    numbers = (starts_of(is_used)[:-1]).astype(dictionary.index_dtype(int(is_used.sum())))
    moved = take_values(FixedValues(numbers), item_indices)
    used_items = take_values(items, np.flatnonzero(is_used))
    assert isinstance(moved, FixedValues)  # noqa: S101 - as what was taken from
    assert isinstance(used_items, (FixedValues, VariableValues))  # noqa: S101 - likewise
    return moved.data, used_items


def _packed_bytes(count: int, items: FixedValues | VariableValues) -> float:
    item_bytes = items.data.nbytes + (items.offsets.nbytes if isinstance(items, VariableValues) else 0)
    return count * max(1, (len(items) - 1).bit_length()) / 8 + item_bytes


def _joined_validity(parts: Sequence[DictionaryEncoded]) -> Mask | None:
    """False for null; None if nothing is null."""
    if all(part.validity is None for part in parts):
        return None
    masks = [np.ones(len(part), np.bool_) if part.validity is None else part.validity for part in parts]
    joined = masks[0] if len(masks) == 1 else np.concatenate(masks)
    return None if joined.all() else joined
