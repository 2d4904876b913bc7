"""Staged-transaction files: passed from Spark's commit step to the process that started the job, which commits them.

Spark's own functions return nothing, and its commit step runs in a process of its own. So what the tasks have staged
is written down as a transaction beside those of the table, read once by the caller, and removed. Nobody else looks at
it, and clean-up removes it if the caller was killed in between. Its checksum must be there: half of a file would decode
as fewer rows.
"""

from __future__ import annotations

import base64
import uuid
from typing import TYPE_CHECKING

import pyarrow as pa

from lance_core.errors import CorruptDataError
from lance_core.format.table.paths import transaction_path
from lance_core.format.table.transaction import (
    Transaction,
    decode_transaction,
    encode_transaction,
    encode_transaction_file,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lance_core.format.table.operations import Operation
    from lance_core.store.base import Store


def stage_transaction(
    store: Store,
    job: uuid.UUID,
    operation: Operation,
    tables: Mapping[str, pa.Table | None] | None = None,
    numbers: Mapping[str, int] | None = None,
) -> None:
    """Write down what the tasks of a job have staged.

    Args:
        store: The branch.
        job: The job.
        operation: The change.
        tables: What else the caller needs, by name; None is left out.
        numbers: More of it.
    """
    given = {name: _encode(table) for name, table in (tables or {}).items() if table is not None}
    texts = {name: str(value) for name, value in (numbers or {}).items()}
    transaction = Transaction(
        read_version=0, uuid=_name(job), operation=operation, transaction_properties={**given, **texts}
    )
    store.put(transaction_path(transaction.file_name), encode_transaction_file(encode_transaction(transaction)))


def load_staged_transaction(store: Store, job: uuid.UUID) -> Transaction:
    """Read what was handed over, and remove it.

    Raises:
        NotFoundError: Nothing was.
        CorruptDataError: It is not what was written; it stays, as do the staged files, for clean-up.
    """
    path = transaction_path(f"0-{_name(job)}.txn")
    transaction = decode_transaction(store.get(path), path=f"{store.uri}/{path}", has_checksum=True)
    store.delete([path])
    return transaction


def _name(job: uuid.UUID) -> str:
    """Not the job itself, from which the names of data files follow."""
    return str(uuid.uuid5(job, "handover"))


def _encode(table: pa.Table) -> str:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return base64.b64encode(sink.getvalue()).decode()


def decode_tables(transaction: Transaction, prefix: str) -> list[pa.Table]:
    """Return the tables that were handed over under names with a prefix."""
    texts = [text for name, text in transaction.transaction_properties.items() if name.startswith(prefix)]
    try:
        return [pa.ipc.open_stream(base64.b64decode(text)).read_all() for text in texts]
    except (ValueError, pa.ArrowInvalid) as error:
        raise CorruptDataError(f"cannot read the result of Spark's tasks: {error}") from error
