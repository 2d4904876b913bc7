"""pandas frames, by way of Arrow; the index is not stored (reset it to keep it)."""

from typing import Any

import pyarrow as pa

from lance_core.errors import InvalidInputError
from lance_dagster.handlers.bridge import ArrowBridge


def _schema(frame: Any) -> pa.Schema:
    try:
        return pa.Schema.from_pandas(frame, preserve_index=False).remove_metadata()
    except pa.ArrowException as error:
        column = next((name for name, values in frame.items() if not _is_of_one_type(values)), None)
        msg = (
            f"The column {column!r} holds values of several types: {error}. Give it one type, such as by `astype(str)`."
        )
        raise InvalidInputError(msg) from error


def _is_of_one_type(values: Any) -> bool:
    try:
        pa.array(values)
    except pa.ArrowException:
        return False
    return True


PANDAS = ArrowBridge(
    types=("pandas.DataFrame",),
    schema=_schema,
    to_arrow=lambda obj: pa.Table.from_pandas(obj, preserve_index=False).replace_schema_metadata(None),
    from_table=lambda table: table.to_pandas(),
)
