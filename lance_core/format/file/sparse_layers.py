"""Layers of nesting that positions describe in place of levels (file version 2.3).

The buffers of a page end with those of its layers, from the outermost to the leaf: for lists the positions of those
that are not empty, the number of their items, and the positions of nulls. An encoding that takes no bytes has none.
Positions and numbers have 64 bits. Source: ``SparseStructure`` of package ``lance.encodings23``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_core._proto import encodings_v2_3_pb2 as pb
from lance_core.common.frozen import NamedTuple
from lance_core.errors import CorruptDataError
from lance_core.format.file.encodings import decode_encoding

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lance_core.format.file.encodings import Encoding


class SparseValidity(NamedTuple):
    """Null slots of a layer.

    Attributes:
        are_valid: True if the positions are those of the slots that are valid, False for those of nulls.
        positions: Encoding of the ascending positions.
        num_positions: How many there are.
    """

    are_valid: bool
    positions: Encoding
    num_positions: int


class SparseLists(NamedTuple):
    """Location of the items of lists.

    Attributes:
        positions: Encoding of the ascending positions of lists that are not empty.
        counts: Encoding of the number of items of each of them.
        num_positions: How many there are.
        num_items: Items of all lists.
    """

    positions: Encoding
    counts: Encoding
    num_positions: int
    num_items: int


class SparseLayer(NamedTuple):
    """One layer of nesting.

    Attributes:
        validity: Which slots are null.
        lists: Where the items are, None if the layer is none of lists.
        dimension: Slots of the next layer inside of each slot of a fixed-size list, else 1.
    """

    validity: SparseValidity
    lists: SparseLists | None = None
    dimension: int = 1

    @property
    def has_null(self) -> bool:
        """True if a slot may be null."""
        return self.validity.are_valid or self.validity.num_positions > 0


def decode_sparse_layers(layers: Iterable[pb.SparseLayer]) -> tuple[SparseLayer, ...]:
    """Read layers, from the outermost to the leaf.

    Raises:
        UnsupportedError: An encoding that cannot be read; the message names it.
        CorruptDataError: A layer or a meaning that is unknown.
    """
    return tuple(map(_decode_layer, layers))


def _decode_layer(message: pb.SparseLayer) -> SparseLayer:
    match message.WhichOneof("layer"):
        case "validity":
            return SparseLayer(_decode_validity(message.validity))
        case "list":
            lists = SparseLists(
                decode_encoding(message.list.non_empty_positions),
                decode_encoding(message.list.counts),
                message.list.num_non_empty_positions,
                message.list.num_child_slots,
            )
            return SparseLayer(_decode_validity(message.list.validity), lists)
        case "fixed_size_list":
            dimension = message.fixed_size_list.dimension
            if dimension == 0:
                raise CorruptDataError("fixed-size list of no items")
            return SparseLayer(_decode_validity(message.fixed_size_list.validity), dimension=dimension)
        case _:
            raise CorruptDataError("a page has a sparse layer that is unknown")


def _decode_validity(message: pb.SparseValidity) -> SparseValidity:
    if message.meaning not in (pb.SPARSE_NULL_POSITIONS, pb.SPARSE_VALID_POSITIONS):
        raise CorruptDataError(f"a page has sparse positions of unknown meaning {message.meaning}")
    are_valid = message.meaning == pb.SPARSE_VALID_POSITIONS
    return SparseValidity(are_valid, decode_encoding(message.positions), message.num_positions)
