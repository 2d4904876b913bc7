"""Functions of SQL on JSON columns answer as pylance does."""

import json
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import lance_core
from lance_core.sql import json_find
from lance_core.sql import json_functions as sql_json

DOCUMENTS = [
    '{"a":1,"b":"x","c":[1,2,"t",null,true,1.5],"d":{"e":{"f":5}},"n":null,"k k":1,"big":12345678901234567890}',
    None,
    '[1,2,3,"x",{"a":7}]',
    '"str"',
    "5",
    "null",
    "[]",
    "{}",
    '{"a":[{"b":1},{"b":2},{"c":3},[{"b":9}]]}',
    "[[1,2],[3,4,5]]",
    '{"a":{"x":1,"y":{"b":2.0}},"0":"zero"}',
    '{"a":"x\\u0001y/\\u00e9","_u":1e300,"1k":[],"\\u00e9":1.5e-7}',
    '["{\\"b\\":1}",{"b":1},[1],"1","\\"t\\"",true,-0.0,"x\\"y"]',
]
PATHS = [
    *(
        "",
        "$",
        "a",
        "$.a",
        ".a",
        "$:a",
        "$ .a ",
        " $.a",
        "$.b",
        "$.n",
        "$.d.e.f",
        "d.e:f",
        "$._u",
        "$.1k",
        "$.é",
        "$.A",
    ),
    *('$."k k"', '$["a"]', '$[ "a" ].b', "$[0]", "[0]", "$[ 1 ]", "$[01]", "$[0][1]", "$[9]", "$[-1]", "$[0, 2]", "0"),
    *("$[last]", "$[last-1]", "$[last - 1]", "$[last+1]", "$[0,last]", "$[0,0]", "last", "c[last]"),
    *("$[*]", "$.*", "$.a[*]", "$.a[*].b", "$.a.b", "$.a.*", "[*][0]", "$.*.*", "$[*][*]"),
]
ITEMS = [
    "1",
    "x",
    "true",
    "null",
    "1.5",
    '{"b":1}',
    "[1]",
    '"1"',
    '"t"',
    "2.0",
    "-0.0",
    'x\\"y',
    'x"y',
    "[1,2]",
    '\\"t\\"',
]
KEYS = ["a", "b", "c", "0", "1", "+1", "01", "-1", "last", "", "$.a", "k k", "n"]
SCALARS = [
    *("1", "0", "-9", "1.5", "-2.5", "0.5", "2.0", "1e300", "9223372036854775807", "9223372036854775808"),
    *("-9223372036854775808.0", "0.49999999999999994", "true", "false", "null", "[]", "{}", '{"b":1}'),
    *('"x"', '"12"', '" 7 "', '"TRUE"', '"no"', '"YeS"', '"on"', '"t"', '"1.5"', '"1e3"', '""', '"+4"', '"1_0"'),
    *('"inf"', '"-Infinity"', '"1."', '".5"', '"."', '"9223372036854775807"', '"9223372036854775808"', '"0x10"'),
]


@pytest.fixture(scope="module")
def handles(tmp_path_factory: pytest.TempPathFactory):
    path = str(tmp_path_factory.mktemp("json") / "table")
    table = pa.table(
        {"i": range(len(DOCUMENTS)), "j": pa.array(DOCUMENTS, pa.json_()), "p": [None, "$.a", "$[0]", "$"] * 3 + ["$"]}
    )
    lance.write_dataset(table, path, data_storage_version="2.2")
    return lance_core.dataset(path), lance.dataset(path)


def same(handles, expressions: list[str]) -> None:
    columns = {f"c{place}": one for place, one in enumerate(expressions)}
    mine, theirs = (one.to_table(columns=columns) for one in handles)
    assert mine.schema.types == theirs.schema.types
    for name, expression in columns.items():
        assert mine[name].to_pylist() == theirs[name].to_pylist(), expression


@pytest.mark.parametrize("function", ["json_extract", "json_exists", "json_array_length"])
def test_paths_find_what_pylance_finds(handles, function):
    same(handles, [*(f"{function}(j, '{path}')" for path in PATHS), f"{function}(j, p)", f"{function}(j, NULL)"])


def test_items_are_found_in_arrays_as_pylance_finds_them(handles):
    paths = ["$", "$[*]", "$.a", "c", "$[0]"]
    same(handles, [f"json_array_contains(j, '{path}', '{item}')" for path in paths for item in ITEMS])
    same(handles, ["json_array_contains(j, '$', NULL)", "json_array_contains(j, '$', 1)"])


def test_members_are_the_same_jsonb(handles):
    same(handles, [f"json_get(j, '{key}')" for key in KEYS])
    same(handles, ["json_get(j, NULL)", "json_extract(json_get(j, 'a'), '$.x')", "json_get_int(json_get(j, 'd'), 'x')"])


@pytest.mark.parametrize("kind", ["string", "int", "float", "bool"])
def test_members_become_the_values_that_pylance_makes(tmp_path: Path, kind):
    keys = [f"k{place}" for place in range(len(SCALARS))]
    document = "{" + ",".join(f'"{key}":{value}' for key, value in zip(keys, SCALARS, strict=True)) + "}"
    assert json.loads(document)
    path = str(tmp_path / "table")
    theirs = lance.write_dataset(pa.table({"j": pa.array([document], pa.json_())}), path, data_storage_version="2.2")
    mine = lance_core.dataset(path)
    for key, value in zip(keys, SCALARS, strict=True):
        columns = {"x": f"json_get_{kind}(j, '{key}')"}
        try:
            expected = theirs.to_table(columns=columns)
        except (OSError, ValueError):
            with pytest.raises(lance_core.LanceError, match="is not"):
                mine.to_table(columns=columns)
        else:
            assert mine.to_table(columns=columns).equals(expected), value


def test_many_documents_are_not_parsed_one_by_one(tmp_path: Path, monkeypatch):
    """Conditions, columns and both; the column is text where it is asked for."""
    documents = [f'{{"a":{place},"o":{{"p":[{place / 4},"é",null]}},"s":"n{place % 3}"}}' for place in range(300)]
    documents[7], documents[8], documents[9] = None, '{"a":null}', "[5]"
    path = str(tmp_path / "table")
    rows = pa.table({"i": range(300), "j": pa.array(documents, pa.json_())})
    theirs = lance.write_dataset(rows, path, data_storage_version="2.2")
    mine = lance_core.dataset(path)
    monkeypatch.setattr(json_find, "find_all", None)
    monkeypatch.setattr(sql_json.json_find, "find_all", None)
    paths = ["$.a", "$.o.p[0]", "$.o.p[1]", "$.o.p[last]", "$.o", "$.nope", "$[0]"]
    functions = ["json_extract", "json_exists", "json_array_length"]
    same((mine, theirs), [f"{function}(j, '{one}')" for function in functions for one in paths])
    same(
        (mine, theirs),
        ["json_get_int(j, 'a')", "json_get_float(j, 'a')", "json_get_string(j, 's')", "json_get(j, 'o')"],
    )
    monkeypatch.undo()  # a column that is also asked for as text is parsed
    condition = "json_extract(j, '$.s') = '\"n1\"' AND json_get_int(j, 'a') > 100"
    for columns in (
        ["i"],
        ["j"],
        {"x": "json_extract(j, '$.o.p[1]')"},
        {"i": "i", "j": "j", "x": "json_exists(j, '$.a')"},
    ):
        expected = theirs.to_table(columns=columns, filter=condition)
        found = mine.to_table(columns=columns, filter=condition)
        assert found.to_pylist() == expected.to_pylist()
        assert found.num_rows
        assert found.schema.types == expected.schema.types


@pytest.mark.parametrize(
    "condition",
    ["json_extract(j, '$.a') = '1'", "json_exists(j, '$.n')", "NOT json_array_contains(j, '$', '1') AND i > 2"],
)
def test_conditions_and_queries_keep_the_same_rows(handles, condition):
    mine, theirs = handles
    expected = theirs.to_table(columns=["i"], filter=condition)
    assert mine.to_table(columns=["i"], filter=condition).equals(expected)
    assert expected.num_rows
    sql = f"SELECT json_extract(j, '$.a') AS a, i FROM dataset WHERE {condition} ORDER BY i"  # noqa: S608 a test
    answers = [pa.Table.from_batches(one.sql(sql).build().to_batch_records()) for one in handles]
    assert answers[0].equals(answers[1])
