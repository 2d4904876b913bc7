"""Types of Arrow in tables of file versions 2.1 and 2.2, both ways: what one writes the other reads, in each way of
reading."""

import json
import uuid

import lance
import lance.arrow
import numpy as np
import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import UnsupportedError

N = 3000
RNG = np.random.default_rng(5)
NUMBERS = RNG.integers(0, 1000, N)
NULLS = RNG.random(N) < 0.2
PACKED = {"lance-encoding:packed": "true"}
BOTH = ("2.1", "2.2")


def _nullable(values, kind=None):
    return pa.array(
        [None if null else value for value, null in zip(values, NULLS, strict=True)],
        kind,
    )


def _dictionary(items, index=None):
    indices = pa.array(NUMBERS % len(items), mask=NULLS).cast(index or pa.int32())
    return pa.DictionaryArray.from_arrays(indices, items)


def _struct(**children):
    return pa.StructArray.from_arrays(list(children.values()), list(children))


def _fixed(items, size, *, has_nulls=True):
    count = len(items) // size
    mask = pa.array(NULLS[:count]) if has_nulls else None
    return pa.FixedSizeListArray.from_arrays(items, size, mask=mask)


TEXTS = [f"row {one}" for one in NUMBERS.tolist()]
XS, YS = pa.array(NUMBERS.astype(np.int32), mask=NULLS), _nullable(TEXTS)
PAIRS = pa.StructArray.from_arrays([XS, YS], ["x", "y"], mask=pa.array(~NULLS & (NUMBERS < 100)))
FIXED = _struct(a=pa.array(NUMBERS), b=pa.array(NUMBERS / 7), c=pa.array([b"%03d" % one for one in NUMBERS]))
FIXED = FIXED.cast(pa.struct([("a", pa.int64()), ("b", pa.float64()), ("c", pa.binary(3))]))
VARIABLE = _struct(a=pa.array(NUMBERS), b=pa.array(TEXTS), v=_fixed(pa.array(RNG.random(2 * N)), 2, has_nulls=False))
JSON = [json.dumps({"id": one, "tags": [None, True, one / 8]}, separators=(",", ":")) for one in NUMBERS.tolist()]
UUIDS = pa.array([uuid.UUID(int=one).bytes for one in NUMBERS.tolist()], pa.uuid())


def _with_nulls(struct):
    fields = [struct.type.field(index) for index in range(struct.type.num_fields)]
    return pa.StructArray.from_arrays(struct.flatten(), fields=fields, mask=pa.array(NULLS))


CASES = {
    "dictionary": (BOTH, _dictionary(pa.array(["a", "bb", "", "dddd"]))),
    "dictionary of one index width": (BOTH, _dictionary(pa.array(TEXTS[:100]), pa.int8())),
    "dictionary of many": (BOTH, _dictionary(pa.array(TEXTS), pa.uint16())),
    "dictionary of numbers": (BOTH, _dictionary(pa.array([1.5, 2.5, -1.0]), pa.uint8())),
    "dictionary of booleans": (BOTH, _dictionary(pa.array([True, False]))),
    "dictionary of bytes": (BOTH, _dictionary(pa.array([b"1", b"2"], pa.large_binary()), pa.int64())),
    "dictionary with a null item": (BOTH, _dictionary(pa.array(["a", None, "c"]))),
    "dictionary of nothing": (BOTH, _dictionary(pa.array(["a"]).slice(0, 1)).filter(pa.array(NULLS))),
    "list of dictionary": (BOTH, pa.ListArray.from_arrays(np.arange(0, N + 1, 3), _dictionary(pa.array(["a", "b"])))),
    "struct of dictionary": (BOTH, _with_nulls(_struct(d=_dictionary(pa.array(["a", "b"])), x=XS))),
    "packed": (BOTH, (FIXED, PACKED)),
    "packed with nulls": (BOTH, (_with_nulls(FIXED), PACKED)),
    "packed by its short name": (BOTH, (FIXED, {"packed": "true"})),
    "packed of variable width": (("2.2",), (VARIABLE, PACKED)),
    "packed of variable width with nulls": (("2.2",), (_with_nulls(VARIABLE), PACKED)),
    "list of packed": (
        ("2.2",),
        pa.ListArray.from_arrays(np.arange(0, N + 1, 3), _with_nulls(VARIABLE)).cast(
            pa.list_(pa.field("item", VARIABLE.type, metadata=PACKED))
        ),
    ),
    "structs in fixed-size lists": (("2.2",), _fixed(PAIRS, 3)),
    "structs in fixed-size lists, no nulls": (("2.2",), _fixed(FIXED, 2, has_nulls=False)),
    "fixed-size lists of structs of them": (("2.2",), _fixed(_struct(inner=_fixed(PAIRS, 3)), 2)),
    "struct of fixed-size lists of structs": (("2.2",), _struct(f=_fixed(PAIRS, 3), g=_fixed(PAIRS, 3))),
    "struct without fields": (BOTH, pa.array([{}] * N, pa.struct([]))),
    "uuid": (BOTH, UUIDS),
    "struct of uuid": (BOTH, _struct(u=UUIDS, x=XS)),
    "list of uuid": (BOTH, pa.ListArray.from_arrays(np.arange(0, N + 1, 3), UUIDS)),
    "json": (BOTH, pa.ExtensionArray.from_storage(pa.json_(), _nullable(JSON))),
    "list of json": (
        BOTH,
        pa.ListArray.from_arrays(np.arange(0, N + 1, 3), pa.ExtensionArray.from_storage(pa.json_(), pa.array(JSON))),
    ),
    "bool8": (BOTH, pa.ExtensionArray.from_storage(pa.bool8(), pa.array(NUMBERS % 2, pa.int8()))),
    "opaque": (BOTH, pa.ExtensionArray.from_storage(pa.opaque(pa.int64(), "kind", "vendor"), pa.array(NUMBERS))),
    "tensor": (BOTH, pa.FixedShapeTensorArray.from_numpy_ndarray(RNG.random((N, 2, 3)))),
    "bfloat16": (BOTH, lance.arrow.bfloat16_array(NUMBERS.astype(float).tolist())),
    "vectors of bfloat16": (BOTH, _fixed(lance.arrow.bfloat16_array(NUMBERS.astype(float).tolist()), 4)),
    "unknown extension": (BOTH, (XS, {"ARROW:extension:name": "my.own", "ARROW:extension:metadata": "1", "k": "v"})),
    "text views": (BOTH, _nullable(TEXTS, pa.string_view())),
    "map in a map": (
        ("2.2",),
        pa.array(
            [[(1, [("a", one)])] if one % 3 else None for one in NUMBERS.tolist()],
            pa.map_(pa.int64(), pa.map_(pa.string(), pa.int64())),
        ),
    ),
}
PARAMETERS = [(name, version) for name, (versions, _) in CASES.items() for version in versions]


def _table(name):
    case = CASES[name][1]
    array, metadata = case if isinstance(case, tuple) else (case, None)
    fields = [pa.field("c", array.type, metadata=metadata), pa.field("i", pa.int64(), nullable=False)]
    schema = pa.schema(fields, metadata={"about": "the table"})
    return pa.table([array, pa.array(range(len(array)))], schema=schema)


def _alone(name):
    """Names of the columns that pylance 14.0.2 reads together: it joins no others to these types."""
    return ["c"] if "structs" in name or "without fields" in name else None


def _same(ours, theirs):
    # pylance 14.0.2 drops the schema's metadata when it takes rows.
    schemas = [one.schema.with_metadata(None) for one in (ours, theirs)]
    assert schemas[0].equals(schemas[1], check_metadata=True)
    assert _is_equal(ours["c"], theirs["c"])


def _is_equal(column, expected):
    """Whether values are equal, as they print if not as they are: types and dictionaries may differ."""
    if column.type == expected.type and column.equals(expected):
        return True
    return [str(one) for one in column.to_pylist()] == [str(one) for one in expected.to_pylist()]


def _parts(table):
    """Two parts; pylance 14.0.2 panics at slices of some types, so these are copies."""
    first = len(table) // 3
    if table.schema.field("c").type == pa.string_view():
        return table.slice(0, first), table.slice(first)
    places = np.arange(len(table))
    return table.take(places[:first]), table.take(places[first:])


@pytest.mark.parametrize(("name", "version"), PARAMETERS)
def test_both_ways(tmp_path, name, version):
    table, columns = _table(name), _alone(name)
    if columns is not None:
        table = table.select(columns)
    for module in (lance, lance_core):
        path = str(tmp_path / module.__name__)
        for part in _parts(table):
            module.write_dataset(part, path, mode="append", data_storage_version=version)
        theirs, ours = lance.dataset(path), lance_core.dataset(path)
        assert ours.schema.equals(theirs.schema, check_metadata=True)
        whole = ours.to_table()
        _same(whole, theirs.to_table())
        assert _is_equal(whole["c"], table["c"])
        rows = RNG.integers(0, len(table), 40).tolist()
        _same(ours.take(rows), theirs.take(rows))
        window = {"offset": len(table) // 4, "limit": len(table) // 2}
        _same(ours.to_table(columns=["c"], **window), theirs.to_table(columns=["c"], **window))
        batches = list(ours.to_batches(batch_size=100))
        assert sum(batch.num_rows for batch in batches) == len(table)
        assert _is_equal(pa.chunked_array([batch["c"] for batch in batches]), table["c"])


def test_every_way_to_read_gives_the_types(tmp_path):
    path = str(tmp_path / "t")
    lance_core.write_dataset(_table("struct of uuid"), path)
    ours, theirs = lance_core.dataset(path), lance.dataset(path)
    fragments = ours.get_fragment(0), theirs.get_fragment(0)
    expected = theirs.schema.field("c").type
    for one in (
        *(ours.to_table(), ours.scanner().to_table(), ours.scanner(), ours.take([1]), ours.head(1)),
        *(fragments[0], fragments[0].to_table(), fragments[0].take([1]), next(fragments[0].to_batches(rows=(0, 2)))),
        *(next(ours.to_batches()), ours.take([1], columns=["c"]), fragments[1]),
    ):
        assert (one.schema if hasattr(one, "schema") else one).field("c").type == expected


@pytest.mark.parametrize("version", BOTH)
def test_fields_of_fields(tmp_path, version):
    table = _table("struct of dictionary")
    for module in (lance, lance_core):
        path = str(tmp_path / module.__name__)
        module.write_dataset(table, path, data_storage_version=version)
        ours, theirs = (one.dataset(path).to_table(columns=["c.x"]) for one in (lance_core, lance))
        assert ours.equals(theirs, check_metadata=True)


REFUSED = {
    "interval": pa.array([pa.MonthDayNano([1, 2, 3])]),
    "run_end": pa.RunEndEncodedArray.from_arrays([1], [1]),
    "decimal32": pa.array([1], pa.decimal32(5, 2)),
    "decimal64": pa.array([1], pa.decimal64(5, 2)),
    "list_view": pa.array([[1]], pa.list_view(pa.int8())),
    "union": pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])]),
    "keys_sorted": pa.array([[(1, 2)]], pa.map_(pa.int8(), pa.int8(), keys_sorted=True)),
    "dictionary of timestamp": pa.DictionaryArray.from_arrays([0], pa.array([1], pa.timestamp("s"))),
    "list of string": pa.array([["a"]], pa.list_(pa.string(), 1)),
    "structs inside of a list": pa.array([[[{"a": 1}]], []], pa.list_(pa.list_(pa.struct([("a", pa.int8())]), 1))),
    "list of extension type arrow.uuid": pa.FixedSizeListArray.from_arrays(UUIDS.slice(0, 1), 1),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_pylance_refuses_is_refused_by_name(tmp_path, name):
    table = pa.table({"c": REFUSED[name]})
    with pytest.raises(BaseException, match=r"."):  # some of them are panics, which are no Exception
        lance.write_dataset(table, str(tmp_path / "theirs"))
    with pytest.raises(UnsupportedError, match=name):
        lance_core.write_dataset(table, str(tmp_path / "ours"))
    assert not (tmp_path / "ours").exists() or not list((tmp_path / "ours").rglob("*.lance"))


@pytest.mark.parametrize("name", [name for name, (versions, _) in CASES.items() if "2.1" not in versions])
def test_what_needs_a_newer_version_says_so(tmp_path, name):
    with pytest.raises(UnsupportedError, match=r"2\.2"):
        lance_core.write_dataset(_table(name), str(tmp_path / "ours"), data_storage_version="2.1")


def test_json_that_lance_keeps_is_the_same_bytes(tmp_path):
    texts = ["1e-5", "-0.0", "[18446744073709551616,-1,0]", '{"b":{},"a":[]}', '"\\u0001\\u2028"', "1e400", "null"]
    for module in (lance, lance_core):
        array = pa.ExtensionArray.from_storage(pa.json_(), pa.array(texts))
        module.write_dataset(pa.table({"c": array}), str(tmp_path / module.__name__), data_storage_version="2.1")
    ours, theirs = (lance_core.dataset(str(tmp_path / module.__name__)) for module in (lance_core, lance))
    assert ours.to_table()["c"].to_pylist() == lance.dataset(theirs.uri).to_table()["c"].to_pylist()
    assert theirs.to_table()["c"].to_pylist() == lance.dataset(ours.uri).to_table()["c"].to_pylist()
