"""Layouts of pages: the arrangement of levels and values.

Source: message ``PageLayout`` of package ``lance.encodings21``, wrapped in a ``google.protobuf.Any`` (file versions 2.1
and 2.2). ``layers`` go from the leaf outwards.

File version 2.3 has a ``PlanarLayout`` of package ``lance.encodings23`` in its place, which separates structure and
values. Values are stored as in mini-block and full-zip pages of 2.2: with levels, or without them below sparse layers
(`SparseLayout`).
"""

from __future__ import annotations

from dataclasses import replace
from enum import IntEnum
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError

from lance_core._proto import encodings_v2_1_pb2 as pb
from lance_core._proto import encodings_v2_3_pb2 as pb23
from lance_core.common.frozen import frozen
from lance_core.errors import CorruptDataError, UnsupportedError
from lance_core.format.file.encodings import Encoding, decode_encoding, encode_encoding
from lance_core.format.file.sparse_layers import decode_sparse_layers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lance_core.format.file.sparse_layers import SparseLayer

_MANY_LAYOUTS = 256
_TYPE_NAME = "lance.encodings21.PageLayout"
_PLANAR_TYPE_NAME = "lance.encodings23.PlanarLayout"


class Layer(IntEnum):
    """Nulls and lists that occur in one layer of nesting (``RepDefLayer``)."""

    ALL_VALID_ITEM = 1
    ALL_VALID_LIST = 2
    NULLABLE_ITEM = 3
    NULLABLE_LIST = 4
    EMPTYABLE_LIST = 5
    NULL_AND_EMPTY_LIST = 6


Layers: TypeAlias = tuple[Layer, ...]
_NO_LAYERS: Layers = (Layer.ALL_VALID_ITEM,)
"""Those of values that have no levels."""

_LAYERS = {
    Layer.ALL_VALID_ITEM: pb.REPDEF_ALL_VALID_ITEM,
    Layer.ALL_VALID_LIST: pb.REPDEF_ALL_VALID_LIST,
    Layer.NULLABLE_ITEM: pb.REPDEF_NULLABLE_ITEM,
    Layer.NULLABLE_LIST: pb.REPDEF_NULLABLE_LIST,
    Layer.EMPTYABLE_LIST: pb.REPDEF_EMPTYABLE_LIST,
    Layer.NULL_AND_EMPTY_LIST: pb.REPDEF_NULL_AND_EMPTY_LIST,
}


@frozen(kw_only=True)
class MiniBlockLayout:
    """Small values in chunks that are decoded as a whole.

    Attributes:
        rep: Encoding of repetition levels, None without lists.
        definition: Encoding of definition levels, None if nothing is null or empty.
        values: Encoding of the values, or of the indices into the dictionary.
        dictionary: Encoding of the dictionary's items, None without one.
        num_dictionary_items: Items in the dictionary.
        layers: From the leaf outwards.
        num_buffers: Value buffers per chunk.
        has_repetition_index: True if the last buffer is a repetition index.
        num_items: Values that have a slot.
        has_large_chunk: True for 32-bit chunk words and buffer sizes (2.2).
        blob_layers: Layers of the blobs that the values describe (``BlobLayout``), None for other values.
    """

    rep: Encoding | None
    definition: Encoding | None
    values: Encoding
    dictionary: Encoding | None
    num_dictionary_items: int
    layers: Layers
    num_buffers: int
    has_repetition_index: bool
    num_items: int
    has_large_chunk: bool
    blob_layers: Layers | None = None


@frozen(kw_only=True)
class FullZipLayout:
    """Large values, each behind its control word.

    Attributes:
        bits_rep: Bits of a repetition level.
        bits_def: Bits of a definition level.
        bits_per_value: Width of fixed values, None for variable ones.
        bits_per_offset: Width of the length in front of variable values (32 or 64), None for fixed ones.
        num_items: Levels.
        num_visible_items: Values that have a slot.
        values: Encoding of each value.
        layers: From the leaf outwards.
    """

    bits_rep: int
    bits_def: int
    bits_per_value: int | None
    bits_per_offset: int | None
    num_items: int
    num_visible_items: int
    values: Encoding
    layers: Layers


@frozen(kw_only=True)
class ConstantLayout:
    """All values are null, or all are the same.

    Attributes:
        layers: From the leaf outwards.
        inline_value: The one value as the bytes of its Arrow buffer, None if null or stored in a buffer.
        rep: Encoding of repetition levels, None for raw 16-bit levels.
        definition: Encoding of definition levels, None for raw 16-bit levels.
        num_rep_values: Repetition levels, if encoded.
        num_def_values: Definition levels, if encoded.
        sparse: Layers from the outermost to the leaf in place of levels (file version 2.3), None if there are levels.
    """

    layers: Layers
    inline_value: bytes | None = None
    rep: Encoding | None = None
    definition: Encoding | None = None
    num_rep_values: int = 0
    num_def_values: int = 0
    sparse: tuple[SparseLayer, ...] | None = None


@frozen(kw_only=True)
class SparseLayout:
    """Different values below sparse layers (file version 2.3).

    The buffers of a page are those of the values, then those of the layers (`sparse_layers`). Values have one of three
    forms:

    | values      | indices | stored values                                                               |
    |-------------|---------|-----------------------------------------------------------------------------|
    | mini-blocks | no      | one for each slot of the leaf, nulls included                               |
    | full-zip    | no      | one for each valid slot of the leaf                                         |
    | full-zip    | yes     | items; the first buffer has the index of the item of each slot of the leaf  |

    Attributes:
        sparse: Layers from the outermost to the leaf.
        values: Layout of the values, without levels; pylance 14.0.2 writes 0 as ``num_items`` of mini-blocks.
        indices: Encoding of the indices, None if values are not indexed.
        layers: From the leaf outwards.
    """

    sparse: tuple[SparseLayer, ...]
    values: MiniBlockLayout | FullZipLayout
    indices: Encoding | None
    layers: Layers


PageLayout: TypeAlias = MiniBlockLayout | FullZipLayout | ConstantLayout | SparseLayout


@lru_cache(maxsize=_MANY_LAYOUTS)
def encode_layout(layout: PageLayout) -> bytes:
    """Return a layout as serialized ``Any``; the columns of a wide table have few different ones."""
    match layout:
        case MiniBlockLayout():
            message = pb.PageLayout(mini_block_layout=_encode_mini_block(layout))
            if layout.blob_layers is not None:
                layers = _encode_layers(layout.blob_layers)
                message = pb.PageLayout(blob_layout=pb.BlobLayout(inner_layout=message, layers=layers))
        case FullZipLayout():
            message = pb.PageLayout(full_zip_layout=_encode_full_zip(layout))
        case ConstantLayout():
            message = pb.PageLayout(constant_layout=_encode_constant(layout))
        case SparseLayout():
            raise UnsupportedError("sparse layers, which only file version 2.3 has, cannot be written")
    value = message.SerializeToString(deterministic=True)
    return AnyMessage(type_url=f"/{_TYPE_NAME}", value=value).SerializeToString(deterministic=True)


@lru_cache(maxsize=_MANY_LAYOUTS)
def decode_layout(data: bytes) -> PageLayout:
    """Read a layout; the same object for the same bytes, as long as they are remembered.

    Args:
        data: Serialized ``Any``.

    Raises:
        UnsupportedError: A layout that cannot be read; the message names it.
        CorruptDataError: Not a page layout.
    """
    try:
        wrapper = AnyMessage.FromString(data)
        name = wrapper.type_url.rpartition("/")[2]
        if name == _PLANAR_TYPE_NAME:
            return _decode_planar(pb23.PlanarLayout.FromString(wrapper.value))
        if name != _TYPE_NAME:
            raise UnsupportedError(f"pages of type {wrapper.type_url!r} are not supported")
        message = pb.PageLayout.FromString(wrapper.value)
    except DecodeError as error:
        raise CorruptDataError(f"a page layout cannot be parsed: {error}") from error
    kind = message.WhichOneof("layout")
    match kind:
        case "mini_block_layout":
            return _decode_mini_block(message.mini_block_layout)
        case "full_zip_layout":
            return _decode_full_zip(message.full_zip_layout)
        case "constant_layout":
            return _decode_constant(message.constant_layout)
        case "blob_layout":
            return _decode_blob(message.blob_layout)
        case None:
            raise CorruptDataError("a page has no layout or one that is unknown")
        case _:
            raise UnsupportedError(f"pages with {kind.replace('_', ' ')} are not supported")


def _decode_blob(message: pb.BlobLayout) -> MiniBlockLayout:
    if message.inner_layout.WhichOneof("layout") != "mini_block_layout":
        raise UnsupportedError("blobs whose descriptions are not in mini-blocks are not supported")
    inner = _decode_mini_block(message.inner_layout.mini_block_layout)
    if inner.layers != (Layer.ALL_VALID_ITEM,) or inner.definition is not None or inner.rep is not None:
        raise UnsupportedError("descriptions of blobs with levels of their own are not supported")
    layers = _decode_layers(message.layers)
    if not set(layers) <= {Layer.ALL_VALID_ITEM, Layer.NULLABLE_ITEM}:
        raise UnsupportedError("blobs inside of lists, which file version 2.1 cannot tell apart, are not supported")
    return replace(inner, blob_layers=layers)


def _encode_mini_block(layout: MiniBlockLayout) -> pb.MiniBlockLayout:
    return pb.MiniBlockLayout(
        rep_compression=_encode_optional(layout.rep),
        def_compression=_encode_optional(layout.definition),
        value_compression=encode_encoding(layout.values),
        dictionary=_encode_optional(layout.dictionary),
        num_dictionary_items=layout.num_dictionary_items,
        layers=_encode_layers(layout.layers),
        num_buffers=layout.num_buffers,
        repetition_index_depth=int(layout.has_repetition_index),
        num_items=layout.num_items,
        has_large_chunk=layout.has_large_chunk,
    )


def _decode_mini_block(message: pb.MiniBlockLayout) -> MiniBlockLayout:
    if message.repetition_index_depth > 1:
        raise UnsupportedError(f"repetition index of depth {message.repetition_index_depth} is not supported")
    return MiniBlockLayout(
        rep=decode_encoding(message.rep_compression) if message.HasField("rep_compression") else None,
        definition=decode_encoding(message.def_compression) if message.HasField("def_compression") else None,
        values=decode_encoding(message.value_compression),
        dictionary=decode_encoding(message.dictionary) if message.HasField("dictionary") else None,
        num_dictionary_items=message.num_dictionary_items,
        layers=_decode_layers(message.layers),
        num_buffers=message.num_buffers,
        has_repetition_index=message.repetition_index_depth == 1,
        num_items=message.num_items,
        has_large_chunk=message.has_large_chunk,
    )


def _encode_full_zip(layout: FullZipLayout) -> pb.FullZipLayout:
    return pb.FullZipLayout(
        bits_rep=layout.bits_rep,
        bits_def=layout.bits_def,
        bits_per_value=layout.bits_per_value,
        bits_per_offset=layout.bits_per_offset,
        num_items=layout.num_items,
        num_visible_items=layout.num_visible_items,
        value_compression=encode_encoding(layout.values),
        layers=_encode_layers(layout.layers),
    )


def _decode_full_zip(message: pb.FullZipLayout) -> FullZipLayout:
    details = message.WhichOneof("details")
    if details is None:
        raise CorruptDataError("a full-zip page tells neither the width of its values nor that of its lengths")
    if message.bits_rep > 16 or message.bits_def > 16:
        raise CorruptDataError("a full-zip page has levels of more than 16 bits")
    if details == "bits_per_offset" and message.bits_per_offset not in (32, 64):
        raise CorruptDataError(f"a full-zip page has lengths of {message.bits_per_offset} bits")
    if details == "bits_per_value" and message.bits_per_value % 8:
        raise CorruptDataError(f"a full-zip page has values of {message.bits_per_value} bits")
    return FullZipLayout(
        bits_rep=message.bits_rep,
        bits_def=message.bits_def,
        bits_per_value=message.bits_per_value if details == "bits_per_value" else None,
        bits_per_offset=message.bits_per_offset if details == "bits_per_offset" else None,
        num_items=message.num_items,
        num_visible_items=message.num_visible_items,
        values=decode_encoding(message.value_compression),
        layers=_decode_layers(message.layers),
    )


def _encode_constant(layout: ConstantLayout) -> pb.ConstantLayout:
    return pb.ConstantLayout(
        layers=_encode_layers(layout.layers),
        inline_value=layout.inline_value,
        rep_compression=_encode_optional(layout.rep),
        def_compression=_encode_optional(layout.definition),
        num_rep_values=layout.num_rep_values,
        num_def_values=layout.num_def_values,
    )


def _decode_constant(message: pb.ConstantLayout) -> ConstantLayout:
    return ConstantLayout(
        layers=_decode_layers(message.layers),
        inline_value=message.inline_value if message.HasField("inline_value") else None,
        rep=decode_encoding(message.rep_compression) if message.HasField("rep_compression") else None,
        definition=decode_encoding(message.def_compression) if message.HasField("def_compression") else None,
        num_rep_values=message.num_rep_values,
        num_def_values=message.num_def_values,
    )


def _encode_optional(encoding: Encoding | None) -> pb.CompressiveEncoding | None:
    return None if encoding is None else encode_encoding(encoding)


def _encode_layers(layers: Layers) -> list[pb.RepDefLayer]:
    return [_LAYERS[layer] for layer in layers]


def _decode_layers(numbers: Iterable[int]) -> Layers:
    try:
        return tuple(Layer(number) for number in numbers)
    except ValueError as error:
        raise CorruptDataError(f"a page has an unknown layer: {error}") from error


def _decode_planar(message: pb23.PlanarLayout) -> PageLayout:
    structure = message.structure.WhichOneof("structure")
    if structure == "sparse":
        return _decode_sparse(message)
    if structure is None:
        raise CorruptDataError("a page has no structure or one that is unknown")
    layers = _decode_layers(message.structure.dense.layers)
    values = message.values.WhichOneof("values")
    match values:
        case "chunked":
            return _decode_chunked(message.values.chunked, layers)
        case "zipped":
            return _decode_zipped(message.values.zipped, layers)
        case "constant":
            return ConstantLayout(layers=layers, inline_value=message.values.constant.scalar)
        case "no_values":
            return ConstantLayout(layers=layers)
        case "indexed":
            raise UnsupportedError("indexed values beside levels are not supported")
        case _:
            raise CorruptDataError("a page has no values or some that are unknown")


def _decode_sparse(message: pb23.PlanarLayout) -> ConstantLayout | SparseLayout:
    sparse = decode_sparse_layers(message.structure.sparse.layers)
    layers = tuple(map(_layer_of, reversed(sparse)))
    match message.values.WhichOneof("values"):
        case "constant":
            return ConstantLayout(layers=layers, inline_value=message.values.constant.scalar, sparse=sparse)
        case "no_values":
            return ConstantLayout(layers=layers, sparse=sparse)
        case "chunked":
            chunked = _decode_chunked(message.values.chunked, _NO_LAYERS)
            if chunked.rep is not None or chunked.definition is not None or chunked.has_repetition_index:
                raise CorruptDataError("a page has levels beside its sparse layers")
            return SparseLayout(sparse=sparse, values=chunked, indices=None, layers=layers)
        case "zipped":
            zipped = _decode_bare_zipped(message.values.zipped)
            return SparseLayout(sparse=sparse, values=zipped, indices=None, layers=layers)
        case "indexed":
            indexed = message.values.indexed
            items = _decode_bare_zipped(indexed.items)
            return SparseLayout(sparse=sparse, values=items, indices=decode_encoding(indexed.indices), layers=layers)
        case _:
            raise CorruptDataError("a page has no values or some that are unknown")


def _decode_bare_zipped(message: pb23.ZippedValues) -> FullZipLayout:
    zipped = _decode_zipped(message, _NO_LAYERS)
    if zipped.bits_rep or zipped.bits_def:
        raise CorruptDataError("a page has levels beside its sparse layers")
    return zipped


def _layer_of(sparse: SparseLayer) -> Layer:
    """Return the layer that allows whatever there may be."""
    if sparse.lists is None:
        return Layer.NULLABLE_ITEM if sparse.has_null else Layer.ALL_VALID_ITEM
    return Layer.NULL_AND_EMPTY_LIST if sparse.has_null else Layer.EMPTYABLE_LIST


def _decode_chunked(message: pb23.ChunkedValues, layers: Layers) -> MiniBlockLayout:
    """Chunks are those of a mini-block page of 2.2."""
    levels = message.levels
    same = pb.MiniBlockLayout(
        rep_compression=levels.repetition if levels.HasField("repetition") else None,
        def_compression=levels.definition if levels.HasField("definition") else None,
        value_compression=message.values,
        dictionary=message.dictionary if message.HasField("dictionary") else None,
        num_dictionary_items=message.num_dictionary_items,
        layers=_encode_layers(layers),
        num_buffers=message.num_buffers,
        repetition_index_depth=levels.repetition_index_depth,
        num_items=message.num_items,
        has_large_chunk=True,
    )
    return _decode_mini_block(same)


def _decode_zipped(message: pb23.ZippedValues, layers: Layers) -> FullZipLayout:
    """Return values are those of a full-zip page of 2.2."""
    details = message.WhichOneof("details")
    same = pb.FullZipLayout(
        bits_rep=message.levels.bits_rep,
        bits_def=message.levels.bits_def,
        bits_per_value=message.bits_per_value if details == "bits_per_value" else None,
        bits_per_offset=message.bits_per_offset if details == "bits_per_offset" else None,
        num_items=message.num_items,
        num_visible_items=message.num_visible_items,
        value_compression=message.values,
        layers=_encode_layers(layers),
    )
    return _decode_full_zip(same)
