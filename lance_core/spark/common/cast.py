"""Cast record batches to exactly the schema that the other side demands; buffers are shared wherever possible."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from lance_core.errors import InvalidInputError
from lance_core.format.arrow_kinds import is_text
from lance_core.spark.common.uuids import format_uuids, parse_uuids

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def cast_batches(
    batches: Iterable[pa.RecordBatch], target: pa.Schema, *, truncate_nanoseconds: bool = False
) -> Iterator[pa.RecordBatch]:
    """Pick the columns of ``target`` by name out of each batch and give them its types.

    Args:
        batches: Batches that have at least the columns of ``target``.
        target: Names, order, types and nullability of the batches returned.
        truncate_nanoseconds: Times may lose digits.

    Raises:
        InvalidInputError: A value has no place in the target type, or a null meets a column that allows none.
    """
    for batch in batches:
        columns = [_cast(batch.column(field.name), field, truncate_nanoseconds) for field in target]
        yield pa.RecordBatch.from_arrays(columns, schema=target)


def _cast(array: pa.Array, field: pa.Field, truncate_nanoseconds: bool) -> pa.Array:
    if array.type != field.type:
        try:
            array = _converted(array, field, truncate_nanoseconds)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            message = f"Column {field.name!r} cannot be converted from {array.type} to {field.type}: {error}"
            raise InvalidInputError(message) from error
    _check_nulls(array, field)
    return array


def _converted(array: pa.Array, field: pa.Field, truncate_nanoseconds: bool) -> pa.Array:
    source, target = array.type, field.type
    # Nothing else is read as text, or written from text, than uuids.
    if pa.types.is_fixed_size_binary(source) and pa.types.is_string(target):
        return format_uuids(array)
    if pa.types.is_fixed_size_binary(target) and is_text(source):
        return parse_uuids(array, field.name)
    if truncate_nanoseconds:
        import pyarrow.compute as pc  # noqa: PLC0415 rarely needed

        return array.cast(options=pc.CastOptions(target_type=target, allow_time_truncate=True))
    return array.cast(target)


def _check_nulls(array: pa.Array, field: pa.Field) -> None:
    """Arrow does not enforce nullability itself."""
    if not field.nullable and array.null_count:
        raise InvalidInputError(f"Column {field.name!r} is not nullable, but the data has {array.null_count} nulls.")
    kind = field.type
    if pa.types.is_struct(kind):
        children = array.drop_null() if array.null_count else array
        for i in range(kind.num_fields):
            _check_nulls(children.field(i), kind.field(i).with_name(f"{field.name}.{kind.field(i).name}"))
    elif pa.types.is_map(kind):
        _check_nulls(array.items, kind.item_field.with_name(f"{field.name}.value"))
    elif hasattr(kind, "value_field") and not kind.value_field.nullable:
        _check_nulls(array.flatten(), kind.value_field.with_name(f"{field.name}[]"))
