"""Long conditions keep the rows that pylance keeps, in filters and in queries."""

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_core
from lance_core.scan import select

FORMS = {
    "two columns": ("OR", "(a = {0} AND s = 't{0}')"),
    "two columns and a range": ("OR", "(a = {0} AND s = 't{0}' AND x > {0}.5)"),
    "integers between": ("OR", "a BETWEEN {0}5 AND {0}7"),
    "floats between": ("OR", "x BETWEEN {0}.25 AND {0}.5"),
    "half-open ranges": ("OR", "(x >= {0} AND x < {0}.25)"),
    "opposites": ("AND", "NOT (a = {0} AND s = 't{0}')"),
    "opposites of OR": ("AND", "(a <> {0} OR s <> 't{0}')"),
    "text ranges": ("OR", "(a = {0} AND s >= 't{0}')"),
    "other columns": ("OR", "(dataset_size = {0} AND a > {0})"),
    "boxes": ("OR", "(a > {0} AND a < {0}9 AND x > {0} AND x < {0}.75)"),
}


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    random = np.random.default_rng(3)
    rows = pa.table(
        {
            "i": range(4000),
            "a": pa.array(random.integers(0, 400, 4000), mask=random.random(4000) < 0.1),
            "s": pa.array([f"t{one}" for one in random.integers(0, 30, 4000)], mask=random.random(4000) < 0.1),
            "x": pa.array(random.random(4000) * 400, mask=random.random(4000) < 0.1),
            "dataset_size": pa.array(random.integers(0, 400, 4000), pa.int32()),
        }
    )
    place = str(tmp_path_factory.mktemp("long") / "t")
    lance.write_dataset(rows, place)
    return lance_core.dataset(place), lance.dataset(place)


def _condition(name):
    word, form = FORMS[name]
    return f" {word} ".join(form.format(one) for one in range(200))


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("form", ["{}", "NOT ({})", "i > 100 AND ({})", "({}) IS NULL"])
def test_long_conditions_keep_the_same_rows(tables, name, form):
    condition = form.format(_condition(name))
    ours, theirs = (table.to_table(columns=["i"], filter=condition)["i"].to_pylist() for table in tables)
    assert ours == theirs


@pytest.mark.parametrize("name", FORMS)
def test_queries_split_their_conditions_too(tables, name, monkeypatch):
    sizes = []
    parse = select.sqlglot.parse
    monkeypatch.setattr(
        select.sqlglot, "parse", lambda text, **options: sizes.append(len(text)) or parse(text, **options)
    )
    condition = _condition(name).replace("(a ", "(dataset.a ", 1).replace("(x ", "(`dataset`.x ", 1)
    query = f"SELECT count(*) AS n, max(i) AS m FROM dataset WHERE {condition} GROUP BY i % 2 ORDER BY n LIMIT 5"  # noqa: S608
    ours, theirs = (pa.Table.from_batches(one.sql(query).build().to_batch_records()) for one in tables)
    assert ours.to_pylist() == theirs.to_pylist()
    assert sum(sizes) < 2000


@pytest.mark.parametrize(
    "query",
    [
        "SELECT i FROM dataset AS t WHERE {} AND t.i > 5 ORDER BY i",
        "select t.i from dataset t where {} and `t`.a in (1, 2, 3) limit 3 offset 2",
        "SELECT i, a = 0 AS b FROM dataset WHERE {} AND s <> ' WHERE GROUP BY '",
        "SELECT a, count(*) AS n FROM dataset WHERE {} GROUP BY a HAVING count(*) > 1 ORDER BY a",
    ],
)
def test_conditions_are_cut_out_of_queries(tables, query):
    text = query.format(f"({_condition('two columns')} OR i < 900)")
    ours, theirs = (pa.Table.from_batches(one.sql(text).build().to_batch_records()) for one in tables)
    assert ours.to_pylist() == theirs.to_pylist()
    assert ours.num_rows


def test_what_a_query_may_not_have_is_refused_in_long_ones_too(tables):
    long = _condition("two columns")
    for query in (
        f"SELECT i FROM dataset WHERE {long} UNION SELECT i FROM dataset",  # noqa: S608 a test
        f"SELECT i FROM dataset WHERE i IN (SELECT 1) OR {long}",  # noqa: S608 a test
    ):
        with pytest.raises(lance_core.LanceError):
            tables[0].sql(query).build()
