"""Data sets of other shapes than the large ones: what lance_core is not tuned to shall not cost more than elsewhere.

Smaller than the others, so that all works on all of them take some minutes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Callable

_CITIES = ["Oslo", "Lima", "Pune", "Bern", "Riga", "Kyiv", "Lome", "Baku"]
_START = np.datetime64("2024-01-01", "us")


def columns_500(rows: int) -> pa.Table:
    """500 columns of ten kinds in turns: numbers of several widths, times, flags, dates, strings, all with nulls."""
    return _columns(500, rows, seed=101)


def columns_1000(rows: int) -> pa.Table:
    """1,000 columns of the same ten kinds."""
    return _columns(1000, rows, seed=103)


def _columns(number: int, rows: int, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    some_null = pa.array(rng.random(rows) < 0.1)

    def with_nulls(values: Any) -> pa.Array:
        return pc.if_else(some_null, None, pa.array(values))

    makers: list[Callable[[], Any]] = [
        lambda: rng.integers(0, 1 << 40, rows),
        lambda: rng.normal(size=rows),
        lambda: rng.integers(-100, 100, rows, np.int32),
        lambda: rng.random(rows, np.float32),
        lambda: rng.random(rows) < 0.3,
        lambda: _START + rng.integers(0, 10**13, rows).astype("m8[us]"),
        lambda: _pick(_CITIES, rng, rows),
        lambda: _unique("user", rng, rows),
        lambda: with_nulls(rng.integers(0, 1 << 15, rows, np.int16)),
        lambda: with_nulls(np.round(rng.gamma(2.0, 20.0, rows), 2)),
    ]
    made = {f"c{place}": makers[place % len(makers)]() for place in range(number)}
    return pa.table({"id": np.arange(rows), **made})


def orders(rows: int) -> pa.Table:
    """Orders: a list of lines of six fields, a buyer with an address, two times."""
    rng = np.random.default_rng(107)
    sizes = rng.poisson(3, rows)
    number = int(sizes.sum())
    when = _START + np.sort(rng.integers(0, 10**13, rows)).astype("m8[us]")
    lines = pa.StructArray.from_arrays(
        [
            _unique("sku", rng, number, below=50_000),
            pa.array(rng.integers(1, 20, number, np.int32)),
            pa.array(np.round(rng.gamma(2.0, 20.0, number), 2)),
            pa.array(rng.random(number) < 0.2),
            pa.array(rng.choice([0.0, 0.1, 0.25], number)),
            pc.if_else(pa.array(rng.random(number) < 0.7), None, _unique("note", rng, number)),
        ],
        ["sku", "quantity", "price", "gift", "rebate", "note"],
    )
    address = pa.StructArray.from_arrays(
        [_unique("street", rng, rows), _pick(_CITIES, rng, rows), _unique("", rng, rows)],
        ["street", "city", "zip"],
    )
    buyer = pa.StructArray.from_arrays(
        [pa.array(rng.integers(0, 1 << 40, rows)), _unique("buyer", rng, rows), address], ["id", "name", "address"]
    )
    return pa.table(
        {
            "id": rng.permutation(rows),
            "placed": when,
            "shipped": when + rng.integers(0, 10**11, rows).astype("m8[us]"),
            "buyer": buyer,
            "lines": _lists(sizes, lines),
        }
    )


def access_log(rows: int) -> pa.Table:
    """Lines of a web server's log as they are, and of a program with stack traces now and then."""
    rng = np.random.default_rng(109)
    join = pc.binary_join_element_wise
    number = rng.integers(0, 1 << 24, (4, rows))
    address = join(*[pa.array(one % 256).cast(pa.string()) for one in number], ".")
    status = rng.choice([200, 200, 200, 304, 404, 500], rows)
    path = join(_unique("/item", rng, rows, below=10_000), _unique("page", rng, rows, below=30), "?")
    when = (_START + np.cumsum(rng.integers(0, 10**6, rows)).astype("m8[us]")).astype("M8[s]")
    size = rng.integers(100, 100_000, rows)
    agent = _pick([f"Mozilla/5.0 (X11; Linux) Version/{one}.0" for one in range(40)], rng, rows)
    request = join("GET ", path, " HTTP/1.1", "")
    numbers = [pa.array(one).cast(pa.string()) for one in (status, size)]
    line = join(address, "- - [", pa.array(when).cast(pa.string()), '] "', request, '"', *numbers, agent, " ")
    frames = "\n".join(f"  at org.example.Service.call{one}(Service.java:{one})" for one in range(25))
    trace = join(_unique("request", rng, rows), _pick(["", "", "", "", frames], rng, rows), "\n")
    return pa.table({"line": line, "trace": trace, "status": status, "size": size})


def few_in_lists(rows: int) -> pa.Table:
    """Lists of up to eight tags of a few hundred."""
    rng = np.random.default_rng(113)
    sizes = rng.integers(0, 9, rows)
    tags = _pick([f"tag-{one}" for one in range(300)], rng, int(sizes.sum()))
    return pa.table({"id": rng.permutation(rows), "tags": _lists(sizes, tags)})


def unique_in_lists(rows: int) -> pa.Table:
    """Lists of up to eight strings that differ."""
    rng = np.random.default_rng(127)
    sizes = rng.integers(0, 9, rows)
    return pa.table({"id": rng.permutation(rows), "names": _lists(sizes, _unique("name", rng, int(sizes.sum())))})


def skewed(rows: int) -> pa.Table:
    """One value takes most rows, sizes of strings from 1 to 20,000 bytes, numbers with outliers, few rows not null."""
    rng = np.random.default_rng(131)
    sizes = np.minimum(rng.pareto(1.0, rows) * 8 + 1, 20_000).astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    letters = rng.integers(97, 123, int(offsets[-1]), np.uint8)
    words = pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(letters))
    return pa.table(
        {
            "id": rng.permutation(rows),
            "kind": _unique("kind", rng, rows, below=1 << 20, power=8),
            "text": words,
            "number": np.where(rng.random(rows) < 0.001, 1 << 50, rng.integers(0, 10, rows)),
            "rare": pa.array(rng.random(rows), mask=rng.random(rows) < 0.99),
        }
    )


def long_lists(rows: int) -> pa.Table:
    """Lists of 0 to 2,000 readings with the milliseconds between them."""
    rng = np.random.default_rng(137)
    sizes = rng.integers(0, 2001, rows)
    number = int(sizes.sum())
    steps = rng.integers(900, 1100, number, np.int32)
    values = rng.normal(20, 5, number).astype(np.float32)
    return pa.table({"id": rng.permutation(rows), "steps": _lists(sizes, steps), "values": _lists(sizes, values)})


def sparse_maps(rows: int) -> pa.Table:
    """A map that most rows have nothing in, and one that most rows are null in; pylance has maps from 2.2."""
    rng = np.random.default_rng(139)
    is_null = rng.random(rows) < 0.8
    kept: dict[str, Any] = {"id": rng.permutation(rows)}
    for name, missing in (("labels", None), ("settings", is_null)):
        sizes = np.where(rng.random(rows) < 0.1, rng.integers(1, 6, rows), 0)
        if missing is not None:
            sizes = np.where(missing, 0, sizes + 1)
        number = int(sizes.sum())
        keys = _pick([f"key-{one}" for one in range(500)], rng, number)
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
        bounds = pa.array(offsets, mask=None if missing is None else np.append(missing, False))
        kept[name] = pa.MapArray.from_arrays(bounds, keys, _unique("value", rng, number))
    return pa.table(kept)


def _pick(words: list[str], rng: np.random.Generator, rows: int) -> pa.Array:
    return pa.array(words).take(pa.array(rng.integers(0, len(words), rows, np.int32)))


def _unique(name: str, rng: np.random.Generator, rows: int, below: int = 1 << 40, power: int = 1) -> pa.Array:
    """A name with a number; the higher the power, the more of them are small."""
    numbers = (rng.random(rows) ** power * below).astype(np.int64)
    return pc.binary_join_element_wise(name, pa.array(numbers).cast(pa.string()), "-" if name else "")


def _lists(sizes: Any, values: Any) -> pa.Array:
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values if isinstance(values, pa.Array) else pa.array(values))


SHAPES: dict[str, tuple[Callable[[int], pa.Table], int, str, tuple[str, ...]]] = {
    "columns 500": (columns_500, 50_000, "c0", ("c0", "c6")),
    "columns 1000": (columns_1000, 20_000, "c0", ("c0", "c6")),
    "orders": (orders, 300_000, "id", ("id", "lines")),
    "access log": (access_log, 500_000, "size", ("trace", "size")),
    "few in lists": (few_in_lists, 500_000, "id", ("id", "tags")),
    "unique in lists": (unique_in_lists, 500_000, "id", ("id", "names")),
    "skewed": (skewed, 500_000, "id", ("kind", "number")),
    "long lists": (long_lists, 20_000, "id", ("id", "values")),
    "sparse maps": (sparse_maps, 1_000_000, "id", ("id", "labels")),
}
"""For each its maker, its rows, a column of numbers to filter by and two columns to read."""
