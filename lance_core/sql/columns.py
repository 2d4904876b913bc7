"""Columns that SQL names, as terms."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from lance_core.errors import InvalidInputError
from lance_core.sql import terms
from lance_core.sql.kernels import pc

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_core.sql.terms import Term


class NamedColumns:
    """Makes terms of the columns of a schema, and remembers which."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._paths: dict[str, None] = {}
        self.is_copied = False
        """The text is a column and nothing else: values that a dictionary holds stay in it."""

    @property
    def paths(self) -> tuple[str, ...]:
        """Names and dotted paths of the columns asked for, each once."""
        return tuple(self._paths)

    def term(self, path: Sequence[str]) -> Term:
        """Return the column or struct field at a path of names.

        Raises:
            InvalidInputError: There is no such column or field.
        """
        top = _match(path[0], self._schema.names)
        names, arrow = [top], self._schema.field(top)
        for name in path[1:]:
            if not pa.types.is_struct(arrow.type):
                raise InvalidInputError(f"{'.'.join(names)} is {arrow.type} and has no field {name!r}")
            names.append(_match(name, [field.name for field in arrow.type]))
            inner = arrow.type.field(names[-1])
            arrow = inner.with_nullable(inner.nullable or arrow.nullable)
        self._paths[".".join(names)] = None

        is_dictionary = pa.types.is_dictionary(arrow.type) and not self.is_copied
        if is_dictionary:
            arrow = arrow.with_type(arrow.type.value_type)

        def read(batch: pa.RecordBatch) -> pa.Array:
            values = batch.column(top)
            for name in names[1:]:
                values = pc.struct_field(values, name)
            return pc.cast(values, arrow.type) if is_dictionary else values

        return terms.column_term(".".join(names), arrow, read)


def _match(name: str, names: Sequence[str]) -> str:
    if name in names:
        return name
    folded = [name_ for name_ in names if name_.lower() == name.lower()]
    if len(folded) == 1:
        return folded[0]
    import difflib  # noqa: PLC0415 of an error only

    near = difflib.get_close_matches(name, names, n=3) or names[:20]
    raise InvalidInputError(f"there is no column {name!r}. Did you mean {', '.join(near)}? Text needs single quotes")
