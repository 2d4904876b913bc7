"""Plan of a scan, checked against the schema before anything is read."""

from __future__ import annotations

from collections import deque
from dataclasses import field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lance_core.common.frozen import frozen, replace
from lance_core.common.hints import close_names
from lance_core.errors import InvalidInputError
from lance_core.format.blobs import BlobView, needs_bytes, view_schema
from lance_core.format.schema import JSON, Schema
from lance_core.scan.lineage import ROW_CREATED_AT, ROW_UPDATED_AT
from lance_core.scan.row_starts import RowStarts
from lance_core.sql.predicate import conjunction, make_predicate

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Sequence

    import numpy.typing as npt
    from pyarrow.compute import Expression

    from lance_core.format.table.manifest import Manifest
    from lance_core.index.answer import RowAnswer
    from lance_core.sql.predicate import Predicate

ROW_ID = "_rowid"
ROW_ADDRESS = "_rowaddr"
ROW_OFFSET = "_rowoffset"
SYSTEM_COLUMNS = (ROW_ID, ROW_ADDRESS, ROW_CREATED_AT, ROW_UPDATED_AT, ROW_OFFSET)
"""Columns that are not stored but follow from where a row is."""

DEFAULT_BATCH_BYTES = 32 << 20
STREAM_BATCH_BYTES = 4 << 20
"""Of batches that nobody filters: what streams hold is some batches, as read, as made and as handed out."""
_MAX_BATCH_ROWS, _MAX_KEPT_ROWS = 1 << 18, 1 << 19
_MIN_BATCH_ROWS = 1 << 10
_MOST_BATCHES_LOOKED_AT = 32
"""Batches of which a condition is asked together: who asks for few rows may know that they are large in memory."""
_VARIABLE_BYTES = 64
_MANY_PLANS = 16


@frozen(kw_only=True)
class ScanPlan:
    """Plan of a scan, checked against a schema.

    Attributes:
        columns: Output columns: top-level names, dotted paths, or system columns.
        projection: Fields that the output needs.
        schema: Arrow schema of the output.
        batch_size: Rows of a batch at most.
        is_kept: All rows of the result will be in memory together.
        predicate: Rows to keep; None for all.
        filter_projection: Fields that the predicate needs.
        rest: Fields of the projection that the predicate does not bring along.
        index_answer: What indices know of the predicate's answer; None if deleted rows are wanted, or nothing is known.
        index_names: Names of the indices that were asked.
        row_starts: What ``_rowoffset`` needs; None if it is not asked for.
        most_looked_at: Rows of which the predicate is asked together at most, if that is more than a batch.
        residuals: Parts of the predicate that indices leave undecided; None if they decide none or all.
    """

    columns: tuple[str, ...]
    projection: Schema
    schema: pa.Schema
    batch_size: int
    is_kept: bool = False
    predicate: Predicate | None = None
    filter_projection: Schema = field(default_factory=lambda: Schema(()))
    rest: Schema = field(default_factory=lambda: Schema(()))
    index_answer: RowAnswer | None = None
    index_names: tuple[str, ...] = ()
    row_starts: RowStarts | None = None
    most_looked_at: int = 0
    residuals: Residuals | None = None

    @property
    def step(self) -> int:
        """Rows that are looked at together: where all of the result is kept, larger steps are cheaper."""
        return max(self.batch_size, min(4 * self.batch_size, _MAX_KEPT_ROWS)) if self.is_kept else self.batch_size

    def step_in(self, num_rows: int, num_bytes: int) -> int:
        """Rows of which the predicate is asked together: small batches share what a step costs whatever its rows.

        Args:
            num_rows: Rows of a fragment.
            num_bytes: Its stored bytes; 0 if they are not known.
        """
        fitting = STREAM_BATCH_BYTES * num_rows // num_bytes if num_bytes else 0
        return max(self.step, min(fitting, self.most_looked_at, _MOST_BATCHES_LOOKED_AT * self.batch_size))


class Residuals:
    """Parts of a conjunction that indices leave undecided in each fragment.

    A row matches if all parts are true. Among the rows that may match as far as indices know, a part that they decide
    is true: neither is it evaluated, nor are its columns read. Coverage differs between fragments.

    Args:
        fragment_ids: Shape (fragments,), ascending.
        undecided: Shape (fragments, parts), which parts of the predicate are to be asked.
    """

    def __init__(self, fragment_ids: npt.NDArray[np.int64], undecided: npt.NDArray[np.bool_]) -> None:
        self._fragment_ids = fragment_ids
        self._undecided = undecided
        self._plans: tuple[ScanPlan, dict[bytes, ScanPlan]] | None = None

    def plan(self, whole: ScanPlan, fragment_id: int) -> ScanPlan:
        """Return a plan that asks what is left of the predicate; ``whole`` if that is all or nothing.

        Args:
            whole: A plan with the predicate.
            fragment_id: The fragment that is read.
        """
        undecided = self._undecided[np.searchsorted(self._fragment_ids, fragment_id)]
        if self._plans is None or self._plans[0] is not whole:
            self._plans = whole, {}
        plans, key = self._plans[1], undecided.tobytes()
        if key not in plans:
            plans[key] = _asking(whole, np.flatnonzero(undecided).tolist())
        return plans[key]


def _asking(plan: ScanPlan, numbers: list[int]) -> ScanPlan:
    """Return a plan that asks some parts of its predicate only."""
    predicate = plan.predicate
    if predicate is None or len(numbers) in (0, len(predicate.parts)):
        return plan
    rest = conjunction([predicate.parts[number] for number in numbers])
    needed = plan.filter_projection.select([name for name in rest.columns if name not in SYSTEM_COLUMNS])
    others = tuple(field for field in plan.projection.fields if field not in needed.fields)
    return replace(
        plan, predicate=rest, filter_projection=needed, rest=Schema(others, plan.rest.metadata), residuals=None
    )


_cached_plans: deque[tuple[Schema, Hashable, ScanPlan]] = deque(maxlen=_MANY_PLANS)


def known_plan(schema: Schema, asked: Hashable, make: Callable[[], ScanPlan]) -> ScanPlan:
    """The plan for what is asked of a table; many calls ask for the same, also of a table that is opened again.

    Args:
        schema: Schema of the version that is read; the same object for as long as its manifest is known.
        asked: All that the plan depends on besides.
        make: Makes the plan.
    """
    for cached_schema, what, plan in list(_cached_plans):
        if cached_schema is schema and what == asked:
            return plan
    plan = make()
    _cached_plans.appendleft((schema, asked, plan))
    return plan


def plan_scan(
    schema: Schema,
    *,
    columns: Sequence[str] | None,
    filter: str | Expression | None,  # noqa: A002 the name users know
    batch_size: int | None,
    with_row_id: bool,
    with_row_address: bool,
    blob_view: BlobView = BlobView.DESCRIPTIONS,
) -> ScanPlan:
    """Check what is asked for; the plan is known if the same was asked before.

    Raises:
        InvalidInputError: Unknown or duplicate columns, a filter that does not fit.
        UnsupportedError: SQL that is not supported.
    """
    names = list(schema.names) if columns is None else list(columns)
    ids = {ROW_ID: with_row_id, ROW_ADDRESS: with_row_address}
    names += [name for name, wanted in ids.items() if wanted and name not in names]

    def make() -> ScanPlan:
        return _new_plan(view_schema(schema, blob_view), names, filter, batch_size)

    if filter is not None and not isinstance(filter, str):  # pyarrow's expressions have no hash
        return make()
    return known_plan(schema, (tuple(names), filter, batch_size, blob_view), make)


def _new_plan(
    schema: Schema, names: Sequence[str], condition: str | Expression | None, batch_size: int | None
) -> ScanPlan:
    _check_names(names, schema)
    stored = [name for name in names if name not in SYSTEM_COLUMNS]
    projection = schema.select(stored)
    outputs = output_names(names, schema)
    plan = ScanPlan(
        columns=outputs,
        projection=projection,
        schema=_output_schema(outputs, projection),
        batch_size=batch_size or default_batch_size(projection.to_arrow(), STREAM_BATCH_BYTES),
    )
    return plan if condition is None else _with_filter(plan, schema, condition, batch_size)


def with_stored_json(plan: ScanPlan, stored_names: Collection[str]) -> ScanPlan:
    """Let JSON columns be read as they are stored, so that expressions decode only what they ask for.

    Args:
        plan: The plan.
        stored_names: Columns that are read as text.
    """
    if all(top_field.logical_type != JSON or top_field.name in stored_names for top_field in plan.projection.fields):
        return plan
    projection = _stored_json(plan.projection, stored_names)
    return replace(
        plan,
        projection=projection,
        filter_projection=_stored_json(plan.filter_projection, stored_names),
        rest=_stored_json(plan.rest, stored_names),
        schema=_output_schema(plan.columns, projection),
    )


def _stored_json(schema: Schema, stored_names: Collection[str]) -> Schema:
    fields = (
        replace(top_field, logical_type="large_binary", metadata={}, extension_name="")
        if top_field.logical_type == JSON and top_field.name not in stored_names
        else top_field
        for top_field in schema.fields
    )
    return Schema(tuple(fields), schema.metadata)


def with_narrow_structs(plan: ScanPlan, paths: Sequence[str]) -> ScanPlan:
    """Leave out the fields of structs that no expression looks at.

    Args:
        plan: The plan; the columns that expressions look into are structs.
        paths: Paths of all that is asked for, in the order of the plan's columns.
    """
    projection = plan.projection.select([path for path in paths if path not in SYSTEM_COLUMNS])
    if projection.fields == plan.projection.fields:
        return plan
    return replace(
        plan,
        projection=projection,
        rest=rest_of(projection, plan.filter_projection),
        schema=_output_schema(plan.columns, projection),
    )


def rest_of(projection: Schema, needed: Schema) -> Schema:
    """Return the fields of a projection that those of a predicate do not bring along."""
    return Schema(tuple([top for top in projection.fields if top not in needed.fields]), projection.metadata)


def plan_filter(schema: Schema, condition: str | Expression) -> ScanPlan:
    """Return a plan that asks which rows match and reads no columns of them; errors as in `plan_scan`."""
    return plan_scan(schema, columns=(), filter=condition, batch_size=None, with_row_id=False, with_row_address=False)


def with_row_starts(plan: ScanPlan, manifest: Manifest) -> ScanPlan:
    """Return a plan that knows what ``_rowoffset`` needs, if it asks for it."""
    asked = plan.columns if plan.predicate is None else (*plan.columns, *plan.predicate.columns)
    return replace(plan, row_starts=RowStarts.of(manifest.fragments)) if ROW_OFFSET in asked else plan


def _with_filter(plan: ScanPlan, schema: Schema, condition: str | Expression, batch_size: int | None) -> ScanPlan:
    predicate = _predicate(condition, schema)
    needed = schema.select([name for name in predicate.columns if name not in SYSTEM_COLUMNS])
    needed = _stored_json(needed, plan.projection.names)
    rest = rest_of(plan.projection, needed)
    width = _row_width(Schema((*needed.fields, *rest.fields)).to_arrow())
    return replace(
        plan,
        predicate=predicate,
        filter_projection=needed,
        rest=rest,
        batch_size=batch_size or _fitting_rows(width, DEFAULT_BATCH_BYTES),
        most_looked_at=0 if needs_bytes(plan.projection) else _fitting_rows(width, STREAM_BATCH_BYTES),
    )


_SYSTEM_FIELDS = tuple([pa.field(name, pa.uint64()) for name in SYSTEM_COLUMNS])
_predicates: deque[tuple[Schema, str, Predicate]] = deque(maxlen=_MANY_PLANS)


def _predicate(condition: str | Expression, schema: Schema) -> Predicate:
    """Return the predicate of a condition; SQL that is asked again is not parsed again, which would take a millisecond.

    Predicates depend on nothing but the text and the schema: no function of `lance_core.sql` tells the time.
    """
    is_text = isinstance(condition, str)
    for known_schema, text, predicate in list(_predicates) if is_text else ():
        if known_schema is schema and text == condition:
            return predicate
    predicate = make_predicate(condition, pa.schema([*schema.to_arrow(), *_SYSTEM_FIELDS]))
    if is_text:
        _predicates.appendleft((schema, condition, predicate))
    return predicate


def _check_names(names: Sequence[str], schema: Schema) -> None:
    if len(set(names)) < len(names):
        twice = {name for name in names if names.count(name) > 1}
        raise InvalidInputError(f"columns {', '.join(sorted(twice))} are asked for twice")
    valid_names = [*schema.names, *SYSTEM_COLUMNS]
    there = set(valid_names)
    for name in names:
        if name not in there and not any(name.startswith(f"{top}.") for top in valid_names):
            raise InvalidInputError(
                f"no column {name!r}; did you mean {', '.join(close_names(name, valid_names, n=3))}?"
            )


def output_names(names: Sequence[str], schema: Schema) -> tuple[str, ...]:
    """Return the columns of a result.

    Args:
        names: Top-level names, dotted paths and system columns that were asked for.
        schema: Schema of the table.

    Returns:
        The same names. A path into a list or map stands for the list or map, which holds only the fields that were
        asked for; several such paths give it once.
    """
    if len(schema.names) == len(names) and schema.names == tuple(names):
        return schema.names
    tops = {*schema.names, *SYSTEM_COLUMNS}
    return tuple(dict.fromkeys([name if name in tops else _path_of_output(name, schema) for name in names]))


def _path_of_output(name: str, schema: Schema) -> str:
    field = schema.select([name]).fields[0]
    path = field.name
    while path != name and field.logical_type == "struct":
        field = field.children[0]
        path = f"{path}.{field.name}"
    return path


def _output_schema(names: Sequence[str], projection: Schema) -> pa.Schema:
    """Dotted paths come out as flat columns of that name, as in pylance."""
    if tuple(names) == projection.names:
        return projection.to_arrow()
    fields: list[pa.Field] = []
    tops = {top_field.name: top_field.to_arrow() for top_field in projection.fields}
    for name in names:
        if name in SYSTEM_COLUMNS:
            fields.append(pa.field(name, pa.uint64()))
            continue
        top = name if name in tops else next(top for top in tops if name.startswith(f"{top}."))
        arrow = tops[top]
        nullable = arrow.nullable
        for step in path_steps(name, top) if name != top else ():
            arrow = arrow.type.field(step)
            nullable = nullable or arrow.nullable
        fields.append(arrow.with_name(name).with_nullable(nullable))
    return pa.schema(fields, metadata=dict(projection.metadata) or None)


def path_steps(path: str, top: str) -> list[str]:
    """Return the names below the top-level column in a dotted path."""
    return path[len(top) + 1 :].split(".")


def default_batch_size(schema: pa.Schema, num_bytes: int = DEFAULT_BATCH_BYTES) -> int:
    """Return rows of a batch of at most about so many bytes: a power of two, as the pages of vectors have."""
    return _fitting_rows(_row_width(schema), num_bytes)


def _row_width(schema: pa.Schema) -> int:
    """Return bytes of one row, roughly."""
    return sum([_width(kind) for kind in schema.types])


def _fitting_rows(width: int, num_bytes: int) -> int:
    fitting = 1 << max(1, num_bytes // max(width, 1)).bit_length() - 1
    return max(_MIN_BATCH_ROWS, min(_MAX_BATCH_ROWS, fitting))


def _width(kind: pa.DataType) -> int:
    """Return bytes of one value, roughly."""
    if pa.types.is_fixed_size_list(kind):
        return kind.list_size * _width(kind.value_type)
    if pa.types.is_struct(kind):
        return sum(_width(kind.field(i).type) for i in range(kind.num_fields))
    try:
        return max(kind.bit_width // 8, 1)
    except ValueError:
        return _VARIABLE_BYTES
