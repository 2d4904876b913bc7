"""Upkeep of indices: declared indices are created, extended and merged."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

import dagster as dg

from lance_core.errors import InvalidInputError, LanceError
from lance_dagster.index_numbers import index_numbers
from lance_dagster.maintenance.tasks import Report
from lance_dagster.settings import PREFIX, plain_value

if TYPE_CHECKING:
    from collections.abc import Mapping

    import lance_core
    from lance_dagster.maintenance.policies import IndexPolicy
    from lance_dagster.maintenance.tasks import Order, Step

INDICES = "indices"
"""Name of the maintenance asset, and of the setting that declares indices."""


def declared_indices(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Return the indices that the metadata of an asset declare: type by column.

    Raises:
        InvalidInputError: Something else than names of types by column.
    """
    given = plain_value(metadata.get(f"{PREFIX}{INDICES}", {}))
    if not isinstance(given, dict) or not all(isinstance(kind, str) for kind in given.values()):
        raise InvalidInputError(f"'{PREFIX}{INDICES}' must map columns to types of indices, not {given!r}.")
    return {str(column): kind for column, kind in given.items()}


_CONSTANTS = {"true": True, "false": False, "none": None}


def split_kind(kind: str) -> tuple[str, dict[str, Any]]:
    """Return the type of a declared index, and the options behind it, as in ``IVF_PQ(num_sub_vectors=8)``.

    Values are numbers, ``true``, ``false``, ``none``, lists in brackets, and text with or without quotes.

    Raises:
        InvalidInputError: Options that are not names and values.
    """
    text = kind.strip()
    try:
        call = ast.parse(text, mode="eval").body
    except SyntaxError:
        call = None
    if isinstance(call, ast.Name):
        return call.id, {}
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise InvalidInputError(f"{kind!r} is no type of index; write for example 'IVF_PQ(num_sub_vectors=8)'.")
    options = {keyword.arg: _value(keyword.value, text) for keyword in call.keywords}
    if call.args or None in options:
        raise InvalidInputError(f"The options in {kind!r} must be names and values, such as 'num_partitions=16'.")
    return call.func.id, {str(name): value for name, value in options.items()}


def _value(node: ast.expr, text: str) -> Any:
    if isinstance(node, ast.List):
        return [_value(item, text) for item in node.elts]
    try:
        return ast.literal_eval(node)
    except ValueError:
        word = ast.get_source_segment(text, node) or ""
        return _CONSTANTS.get(word.lower(), word)


def _create(dataset: lance_core.LanceDataset, column: str, kind: str) -> None:
    index_type, options = split_kind(kind)
    name = f"{column}_{_plain(kind)}_idx"
    if index_type.upper().startswith("IVF_"):
        dataset.create_index(column, index_type, name, **options)
    else:
        dataset.create_scalar_index(column, index_type, name=name, **options)


def missing_indices(dataset: lance_core.LanceDataset, policy: IndexPolicy) -> dict[str, str]:
    """Return the declared indices that the table does not have: type by column."""
    there = {(tuple(index.field_names), _plain(index.index_type)) for index in dataset.describe_indices()}
    return {column: kind for column, kind in policy.indices.items() if ((column,), _plain(kind)) not in there}


def what_indices_need(dataset: lance_core.LanceDataset, policy: IndexPolicy) -> str | None:
    """Return the reason for upkeep of the indices, None if there is none; reads the manifest only."""
    missing = missing_indices(dataset, policy)
    if missing:
        return f"declared indices are missing: {', '.join(missing)}"
    num_rows = dataset.count_rows()
    # Other kinds are brought up to date by pylance only; asking for that again and again would change nothing.
    described = [index for index in dataset.describe_indices() if index.can_be_extended]
    rows = max((num_rows - index.num_rows_indexed for index in described), default=0)
    if rows > policy.max_uncovered_fraction * num_rows:
        return f"{rows:,} rows are not covered by an index"
    return None


def indexing(policy: IndexPolicy) -> Step:
    """Create the declared indices, extend and merge all."""

    def step(dataset: lance_core.LanceDataset, order: Order) -> Report:
        reason = what_indices_need(dataset, policy)
        numbers = index_numbers(dataset)
        if reason is None or order.dry_run:
            skipped = "dry run" if reason is not None else "all indices cover enough rows"
            return Report(skipped=skipped, numbers=numbers)
        before, failed = dataset.version, dict[str, str]()
        for column, kind in missing_indices(dataset, policy).items():
            try:
                _create(dataset, column, kind)
            except (LanceError, TypeError) as error:
                failed[column] = str(error)
        try:
            dataset.optimize.optimize_indices()
        except LanceError as error:
            failed["optimize_indices"] = str(error)
        dataset.checkout_latest()
        numbers = {"lance/index_reason": reason, **index_numbers(dataset)}
        causes = "; ".join(f"{name}: {error}" for name, error in failed.items())
        if failed and dataset.version == before:
            raise InvalidInputError(f"No index could be brought up to date. {causes}")
        if failed:
            numbers["lance/index_failures"] = dg.MetadataValue.json(failed)
        nothing = None if dataset.version != before else "lance_core builds none of the indices that lack rows"
        return Report(
            skipped=nothing,
            numbers=numbers,
            warning=f"Some indices were left as they are. {causes}" if failed else None,
        )

    return step


def _plain(kind: str) -> str:
    plain = kind.partition("(")[0].strip().lower().replace("_", "")
    return "inverted" if plain == "fts" else plain
