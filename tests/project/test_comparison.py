"""Each cell about this project in the comparison of Spark connectors is held by a test, which is named here."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "comparison.md"
EVIDENCE = {
    "SQL catalog, `CREATE TABLE`": "test_sql:test_rows_are_inserted_changed_and_read_by_version",
    "append, overwrite": "test_write:test_append_creates_and_then_adds",
    "replace rows of a condition": "test_sql_tables:test_rows_of_a_condition_are_replaced_and_all_are_truncated",
    "replace partitions that get rows": "test_write_options:test_only_partitions_that_get_rows_are_replaced",
    "new columns on append": "test_merge_schema:test_new_columns_are_null_in_rows_that_exist",
    "update, delete, merge": "test_table:test_a_table_is_changed_and_maintained_with_deltas_methods",
    "a repeated batch counts once": "test_write:test_a_token_is_written_once",
    "read only some columns": "test_planner:test_scans_have_the_columns_conditions_and_limits_of_the_query",
    "read only some rows": "test_planner:test_scans_have_the_columns_conditions_and_limits_of_the_query",
    "aggregates without reading": "test_planner:test_scans_have_the_columns_conditions_and_limits_of_the_query",
    "table size known to the planner": "test_planner:test_small_tables_are_broadcast",
    "older versions": "test_newest:test_views_of_a_version_a_tag_and_a_time_stay_there",
    "tags, branches": "test_write_options:test_a_branch_is_written_and_the_main_line_stays",
    "stream out": "test_streams:test_rows_arrive_once_even_if_a_batch_is_replayed",
    "stream in": "test_streams:test_rows_arrive_once_even_if_a_batch_is_replayed",
    "compact, remove old versions": "test_sql_tables:test_tables_are_maintained_by_deltas_statements_and_by_procedures",
    "blobs, vectors of fixed size": "test_blobs:test_spark_makes_tables_with_blobs_and_appends_to_them",
    "needs a jar": "test_submit:test_spark_submit_needs_no_line_of_code",
}
"""Rows of the table, and the test of each in `tests/spark`."""


def test_each_row_has_a_test():
    rows = PAGE.read_text().partition("| Spark |")[2].partition("\n\n")[0].splitlines()[2:]
    assert [row.split("|")[1].strip() for row in rows] == list(EVIDENCE)


@pytest.mark.parametrize("row", EVIDENCE)
def test_the_test_of_a_row_exists(row):
    module, _, name = EVIDENCE[row].partition(":")
    tree = ast.parse((ROOT / "tests" / "spark" / f"{module}.py").read_text())
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
