"""Arrow arrays to tensors."""

from __future__ import annotations

import warnings
from typing import Any

import pyarrow as pa

from lance_core.blob import BlobFile
from lance_core.errors import UnsupportedError
from lance_core.torch.backend import torch

_BFLOAT16 = "lance.bfloat16"


def to_tensors(
    batch: pa.RecordBatch | dict[str, Any],
    *,
    uint64_as_int64: bool = True,
    hf_converter: Any = None,
    use_blob_api: bool = False,
) -> Any:
    """Turn the columns of a batch into tensors.

    Args:
        batch: Columns of numbers, booleans, bfloat16, or fixed-size lists and tensors of them. Nulls of floats are
            NaN; other nulls are converted as numpy does it.
        uint64_as_int64: Turn unsigned 64-bit integers into signed ones, which more functions of PyTorch take.
        hf_converter: Converts other columns by ``to_pytorch(name, array)``; None to refuse them.
        use_blob_api: True if columns may be lists of files of blobs.

    Returns:
        A tensor by name; the tensor alone if there is one column.

    Raises:
        NotImplementedError: A column of blobs, which need a function of yours.
        ValueError: A column of another type.
    """
    fields: dict[str, pa.Field] = {}
    if isinstance(batch, dict):
        columns = batch
    else:
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        fields = {field.name: field for field in batch.schema}
    tensors: dict[str, Any] = {}
    for name, array in columns.items():
        if use_blob_api and isinstance(array, list):
            if any(isinstance(item, BlobFile) for item in array):  # pyright: ignore[reportUnknownVariableType]
                raise NotImplementedError(f"column {name!r} holds blobs: give a to_tensor_fn that reads them")
            raise UnsupportedError(f"column {name!r} holds no blob at all in this batch: give a to_tensor_fn")
        is_bfloat16 = _is_bfloat16(fields.get(name, pa.field(name, array.type)))
        tensors[name] = _to_tensor(name, array, hf_converter, is_bfloat16=is_bfloat16)
        if uint64_as_int64 and tensors[name].dtype == torch.uint64:
            tensors[name] = tensors[name].to(torch.int64)
    return next(iter(tensors.values())) if len(tensors) == 1 else tensors


def _to_tensor(name: str, array: pa.Array, hf_converter: Any, *, is_bfloat16: bool) -> Any:
    if isinstance(array.type, pa.FixedShapeTensorType):
        array = array.storage
    kind = array.type
    if is_bfloat16:
        return _bfloat16_tensor(array)
    if _is_number(kind):
        return _number_tensor(array)
    if pa.types.is_fixed_size_list(kind):
        items = array.values.slice(array.offset * kind.list_size, len(array) * kind.list_size)
        if _is_bfloat16(kind.value_field):
            return _bfloat16_tensor(items).view(-1, kind.list_size)
        if _is_number(kind.value_type) and not pa.types.is_boolean(kind.value_type):
            return _number_tensor(items).reshape(-1, kind.list_size)
    if hf_converter is not None:
        return hf_converter.to_pytorch(name, array)
    raise ValueError(
        f"column {name!r} of type {kind} cannot become a tensor: select columns of numbers, or give a to_tensor_fn"
    )


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)


def _is_bfloat16(field: pa.Field) -> bool:
    """Return whether values are bfloat16, whether or not Arrow knows the extension type."""
    if isinstance(field.type, pa.BaseExtensionType):
        return field.type.extension_name == _BFLOAT16
    return (field.metadata or {}).get(b"ARROW:extension:name") == _BFLOAT16.encode()


def _number_tensor(array: pa.Array) -> Any:
    with warnings.catch_warnings():
        # Tensors share memory with the batch where they can, and nobody else holds it.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable", category=UserWarning)
        return torch.from_numpy(array.to_numpy(zero_copy_only=False))


def _bfloat16_tensor(array: pa.Array) -> Any:
    """Return a tensor of the same bits; nulls are NaN."""
    storage = array.storage if isinstance(array, pa.ExtensionArray) else array
    halves = pa.Array.from_buffers(pa.uint16(), len(storage), [None, storage.buffers()[1]], offset=storage.offset)
    tensor = _number_tensor(halves).view(torch.bfloat16)
    if not array.null_count:
        return tensor
    tensor = tensor.clone()
    tensor[torch.from_numpy(array.is_null().to_numpy(zero_copy_only=False))] = float("nan")
    return tensor
