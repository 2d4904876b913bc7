"""Values between Arrow arrays and page buffers: what structural layouts and physical codecs hand to each other."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from lance_core.common.frozen import frozen

Bytes: TypeAlias = npt.NDArray[np.uint8]
Int64s: TypeAlias = npt.NDArray[np.int64]


@frozen
class FixedValues:
    """Values of one width.

    Attributes:
        data: Shape (n,) of dtype bool or uint8/16/32/64 (the bit pattern, whatever the Arrow type), or shape
            (n, width) of uint8 for values wider than 8 bytes.
    """

    data: npt.NDArray[np.generic]

    def __len__(self) -> int:
        return len(self.data)


@frozen
class VariableValues:
    """Byte strings laid end to end.

    Attributes:
        offsets: Shape (n + 1,), int32 or int64, starting at 0, ascending.
        data: The bytes; at least ``offsets[-1]`` of them.
    """

    offsets: npt.NDArray[np.int32] | npt.NDArray[np.int64]
    data: Bytes

    def __len__(self) -> int:
        return len(self.offsets) - 1


@frozen
class FixedListValues:
    """Lists of one length.

    Attributes:
        dimension: Items per value.
        items: ``dimension`` items for each value, one after the other.
        validity: Shape (len(items),) of bool, None if all items are valid.
    """

    dimension: int
    items: Values
    validity: npt.NDArray[np.bool_] | None

    def __len__(self) -> int:
        return len(self.items) // self.dimension


Values: TypeAlias = "FixedValues | VariableValues | FixedListValues"


@frozen
class StructValues:
    """Structs whose fields share one column; nulls of the fields are not stored.

    Attributes:
        children: Values of each field, all of the same number.
    """

    children: tuple[Values, ...]

    def __len__(self) -> int:
        return len(self.children[0])


@frozen
class DictionaryValues:
    """Values as places in a dictionary, of which an array of another type has the items.

    Attributes:
        indices: Place of each value; any for a null.
        items: The dictionary.
        may_repeat: True if an item may stand in the dictionary twice: it was put together from those of several pages.
    """

    indices: FixedValues
    items: Values
    may_repeat: bool = False

    def __len__(self) -> int:
        return len(self.indices)


LeafValues: TypeAlias = "Values | StructValues | DictionaryValues"
"""What a page can hold; a codec holds `Values`."""


@frozen(kw_only=True)
class Chunks:
    """Value buffers of a run of mini-block chunks that share one encoding.

    The same shape serves both ways: a decoder gets views into page buffers, an encoder returns the pieces that the
    mini-block layout puts between its headers. Chunks of several pages may stand in one value.

    Attributes:
        buffers: One entry for each value buffer of the encoding (in the order of the format): the memory that
            holds that buffer of all chunks. Decoders get the same page memory in each entry.
        starts: Shape (buffers, chunks), int64: position of each chunk's buffer in its memory.
        sizes: Shape (buffers, chunks), int64: bytes of each chunk's buffer.
        counts: Shape (chunks,), int64: values in each chunk.
        is_inside: True if they are known to lie in their memory, and to have as many values as chunks may have.
    """

    buffers: tuple[Bytes, ...]
    starts: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]
    is_inside: bool = False
