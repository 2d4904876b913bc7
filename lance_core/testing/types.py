"""A sample of every Arrow type that a table may hold, with every pattern of nulls; for tests of files and tables."""

from __future__ import annotations

import decimal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lance_core.common.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

NULLS = ("none", "some", "runs", "all")
"""Patterns of nulls: no value, three of ten at random, long runs of them, each one."""

_SHARE = 0.3
_RUN_ROWS = 97


@frozen(kw_only=True)
class TypeSample:
    """A type, as a column of a table.

    Attributes:
        name: What users call it, unique.
        type: Arrow type.
        metadata: Metadata of the field; for types that are asked for that way.
        kinds: How many different values there are; 0 for as many as possible.
        size: Characters or bytes of a string.
    """

    name: str
    type: pa.DataType
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    kinds: int = 0
    size: int = 12

    def table(self, num_rows: int, *, nulls: str = "none", seed: int = 0) -> pa.Table:
        """Return a table with one column ``c`` of this type, always the same for the same arguments.

        Args:
            num_rows: Rows.
            nulls: One of `NULLS`; it holds for every level of nesting that may be null.
            seed: For other values.
        """
        maker = _Maker(np.random.default_rng(seed), nulls, self.kinds, self.size)
        column = pa.field("c", self.type, metadata=dict(self.metadata) or None)
        array = maker.array(self.type, num_rows)
        return pa.Table.from_batches([pa.RecordBatch.from_arrays([array], schema=pa.schema([column]))])


@dataclass(slots=True)
class _Maker:
    rng: np.random.Generator
    nulls: str
    kinds: int
    size: int

    def array(self, kind: pa.DataType, count: int) -> pa.Array:
        if isinstance(kind, pa.BaseExtensionType):
            storage = self.array(kind.storage_type, count)
            if isinstance(kind, pa.JsonType):
                texts = [None if value is None else f'{{"text": "{value}"}}' for value in storage.to_pylist()]
                storage = pa.array(texts, kind.storage_type)
            return pa.ExtensionArray.from_storage(kind, storage)
        if pa.types.is_dictionary(kind):
            items = _Maker(self.rng, "none", 9, self.size).array(kind.value_type, 9)
            keys = self._masked(self.rng.integers(0, 9, count).astype(kind.index_type.to_pandas_dtype()))
            return pa.DictionaryArray.from_arrays(keys.cast(kind.index_type), items, ordered=kind.ordered)
        if pa.types.is_run_end_encoded(kind):
            return pc.call_function(
                "run_end_encode", [self.array(kind.value_type, count)], pc.RunEndEncodeOptions(kind.run_end_type)
            )
        return pa.array([self._value(kind, at) for at in range(count)], kind)

    def _masked(self, values: np.ndarray[Any, Any]) -> pa.Array:
        return pa.array(values, mask=np.array([self._is_null(at) for at in range(len(values))], bool))

    def _is_null(self, row: int) -> bool:
        match self.nulls:
            case "none":
                return False
            case "all":
                return True
            case "runs":
                return row // _RUN_ROWS % 2 == 1
            case _:
                return bool(self.rng.random() < _SHARE)

    def _value(self, kind: pa.DataType, row: int) -> object:
        if pa.types.is_null(kind) or self._is_null(row):
            return None
        if pa.types.is_map(kind):
            keys = self.rng.permutation(5)[: self.rng.integers(0, 4)]
            return [(self._plain(kind.key_type, int(key)), self._value(kind.item_type, row)) for key in keys]
        if pa.types.is_fixed_size_list(kind):
            return [self._value(kind.value_type, row) for _ in range(kind.list_size)]
        if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_list_view(kind):
            return [self._value(kind.value_type, row) for _ in range(self.rng.integers(0, 4))]
        if pa.types.is_struct(kind):
            return {field.name: self._value(field.type, row) for field in kind}
        limit = self.kinds or 1 << 20
        return self._plain(kind, int(self.rng.integers(0, limit)))

    def _plain(self, kind: pa.DataType, number: int) -> object:
        if pa.types.is_boolean(kind):
            return number % 2 == 0
        if pa.types.is_floating(kind):
            return np.float16(number % 1000 / 4) if kind == pa.float16() else number / 8 - 1000
        if pa.types.is_decimal(kind):
            return decimal.Decimal(number - 1000).scaleb(-kind.scale)
        if pa.types.is_fixed_size_binary(kind):
            return number.to_bytes(8, "little").ljust(kind.byte_width, b"\1")[: kind.byte_width]
        if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
            return f"{number} abcdé"[: number % self.size + 1] * max(1, self.size // 20)
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
            return b"%d \x00\xff" % number * (number % 3) * max(1, self.size // 8)
        if pa.types.is_integer(kind):
            bits = kind.bit_width - pa.types.is_signed_integer(kind)
            return number * 2654435761 % (1 << min(bits, 40))
        if pa.types.is_interval(kind):
            return pa.MonthDayNano([number % 12, number % 28, number])
        seconds = number % 86_400
        return pa.scalar(seconds * 86_400_000 if kind == pa.date64() else seconds, _storage(kind)).cast(kind)


def _storage(kind: pa.DataType) -> pa.DataType:
    return pa.int32() if kind.bit_width == 32 else pa.int64()


def _numbers() -> Iterator[tuple[str, pa.DataType]]:
    yield from (
        (str(kind), kind)
        for kind in (
            *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
            *(pa.float16(), pa.float32(), pa.float64(), pa.bool_()),
            *(pa.decimal128(20, 3), pa.decimal256(50, 3), pa.date32(), pa.date64()),
            *(pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
            *(pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")),
            *(pa.timestamp("us", zone) for zone in ("UTC", "Europe/Berlin", "+05:30")),
            *(pa.duration(unit) for unit in ("s", "ms", "us", "ns")),
        )
    )


_POINT = pa.struct([("x", pa.int32()), ("y", pa.float64())])
_MIXED = pa.struct([("x", pa.int32()), ("s", pa.string())])
_DEEP = pa.list_(pa.struct([("a", pa.list_(pa.struct([("q", pa.int8())]))), ("b", pa.string())]))

SAMPLES: tuple[TypeSample, ...] = (
    TypeSample(name="null", type=pa.null()),
    *(TypeSample(name=name, type=kind) for name, kind in _numbers()),
    TypeSample(name="string", type=pa.string()),
    TypeSample(name="string, few kinds", type=pa.string(), kinds=9),
    TypeSample(name="string, long", type=pa.string(), size=400),
    TypeSample(name="large_string", type=pa.large_string()),
    TypeSample(name="binary", type=pa.binary()),
    TypeSample(name="large_binary", type=pa.large_binary()),
    TypeSample(name="large_binary, long", type=pa.large_binary(), size=900),
    TypeSample(name="fixed_size_binary", type=pa.binary(3)),
    TypeSample(name="fixed_size_binary, wide", type=pa.binary(300)),
    TypeSample(name="list<int32>", type=pa.list_(pa.int32())),
    TypeSample(name="large_list<string>", type=pa.large_list(pa.string())),
    TypeSample(name="list<list<list<bool>>>", type=pa.list_(pa.list_(pa.list_(pa.bool_())))),
    TypeSample(name="list<null>", type=pa.list_(pa.null())),
    TypeSample(name="list<string, long>", type=pa.list_(pa.string()), size=400),
    TypeSample(name="struct", type=_MIXED),
    TypeSample(
        name="struct<struct<list>>", type=pa.struct([("s", pa.struct([("l", pa.list_(pa.int64()))])), ("v", pa.int8())])
    ),
    TypeSample(name="list<struct<list<struct>>>", type=_DEEP),
    TypeSample(name="empty struct", type=pa.struct([])),
    TypeSample(name="fixed_size_list<float32>", type=pa.list_(pa.float32(), 4)),
    TypeSample(name="fixed_size_list<float32>, wide", type=pa.list_(pa.float32(), 100)),
    TypeSample(name="fixed_size_list<float16>", type=pa.list_(pa.float16(), 3)),
    TypeSample(name="fixed_size_list<bool>", type=pa.list_(pa.bool_(), 5)),
    TypeSample(name="fixed_size_list<timestamp>", type=pa.list_(pa.timestamp("us"), 3)),
    TypeSample(name="fixed_size_list<fixed_size_list>", type=pa.list_(pa.list_(pa.float32(), 2), 3)),
    TypeSample(name="fixed_size_list<struct>", type=pa.list_(_POINT, 2)),
    TypeSample(name="list<fixed_size_list>", type=pa.list_(pa.list_(pa.float32(), 2))),
    TypeSample(name="struct<fixed_size_list>", type=pa.struct([("v", pa.list_(pa.float32(), 2)), ("n", pa.int8())])),
    TypeSample(name="map<string, int64>", type=pa.map_(pa.string(), pa.int64())),
    TypeSample(name="map<int8, list<string>>", type=pa.map_(pa.int8(), pa.list_(pa.string()))),
    TypeSample(name="list<map>", type=pa.list_(pa.map_(pa.string(), pa.int32()))),
    TypeSample(name="dictionary<int8, string>", type=pa.dictionary(pa.int8(), pa.string())),
    TypeSample(name="dictionary<uint16, large_string>", type=pa.dictionary(pa.uint16(), pa.large_string())),
    TypeSample(name="dictionary<int32, int64>", type=pa.dictionary(pa.int32(), pa.int64())),
    TypeSample(name="packed struct", type=_POINT, metadata={"lance-encoding:packed": "true"}),
    TypeSample(name="packed struct with strings", type=_MIXED, metadata={"lance-encoding:packed": "true"}),
    TypeSample(name="string_view", type=pa.string_view()),
    TypeSample(name="binary_view", type=pa.binary_view()),
    TypeSample(name="uuid", type=pa.uuid()),
    TypeSample(name="json", type=pa.json_(pa.string())),
    TypeSample(name="decimal32", type=pa.decimal32(7, 2)),
    TypeSample(name="decimal64", type=pa.decimal64(15, 2)),
    TypeSample(name="month_day_nano_interval", type=pa.month_day_nano_interval()),
    TypeSample(name="run_end_encoded", type=pa.run_end_encoded(pa.int32(), pa.int64())),
    TypeSample(name="list_view", type=pa.list_view(pa.int32())),
)
"""One sample of each type."""
