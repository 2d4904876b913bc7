"""Queries of one table: with and without indices, in order, with a limit, full text; each engine asks its own tables.

python benchmarks/run.py --parts queries
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance.query import PhraseQuery as TheirPhrase
from measure import compare

import lance_core
from lance_core.query import PhraseQuery

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

NUM_ROWS, NUM_FRAGMENTS, NUM_TEXTS = 500_000, 10, 100_000
_VERSIONS = ("2.0", "2.1", "2.2")
_KINDS = {"time": "BTREE", "url": "BTREE", "fare": "BTREE", "code": "BITMAP", "part": "BITMAP", "flag": "BITMAP"}
_FIRST_TIME_US = 1_700_000_000_000_000
_MOST_WORDS, _WORDS_OF_A_TEXT = 3_000, 25

Spent = dict[str, tuple[float, float]]
"""CPU and wall seconds of each engine."""

Work: TypeAlias = "Callable[[Any], Any]"


def _rows(count: int) -> pa.Table:
    """Return rows of which each twentieth value is null; times ascend, all else is mixed."""
    rng = np.random.default_rng(5)
    parts = ["Manhattan", "Brooklyn", "Queens", "Bronx", "Staten Island", "Newark", "JFK", "LaGuardia"]
    zones, numbers = rng.integers(0, 260, count), rng.integers(0, 10**7, count).tolist()

    def some(values: Any) -> pa.Array:
        array = pa.array(values)
        return pc.if_else(pa.array(rng.random(count) < 0.05), pa.scalar(None, array.type), array)

    times = pa.array(_FIRST_TIME_US + np.cumsum(rng.integers(0, 2_000_000, count)), pa.timestamp("us"))
    return pa.table(
        {
            "id": np.arange(count),
            "time": some(times),
            "fare": some(np.round(rng.gamma(2, 8, count), 2)),
            "code": some(rng.integers(0, 1_000, count)),
            "part": some([parts[zone % 8] for zone in zones.tolist()]),
            "zone": some([f"Zone {zone:03d} of {parts[zone % 8]}" for zone in zones.tolist()]),
            "url": [f"https://example.com/{number % 977}/?id={number}" for number in numbers],
            "flag": some(rng.random(count) < 0.3),
        }
    )


def _texts(count: int) -> pa.Table:
    """Return texts in which the most frequent word is in nearly each, and its rank is a word's rarity."""
    rng = np.random.default_rng(5)
    shares = 1 / np.arange(1, _MOST_WORDS + 1)
    chosen = rng.choice(_MOST_WORDS, (count, _WORDS_OF_A_TEXT), p=shares / shares.sum())
    words = np.array([f"word{rank}" for rank in range(_MOST_WORDS)])
    return pa.table({"id": np.arange(count), "text": [" ".join(row) for row in words[chosen].tolist()]})


def _plain(rows: pa.Table) -> dict[str, Work]:
    count = rows.num_rows
    taken = np.sort(np.random.default_rng(3).choice(count, 1_000, replace=False)).tolist()
    return {
        "10 rows with a condition": lambda table: table.to_table(filter="code = 7", limit=10),
        "1,000 rows at an offset": lambda table: table.to_table(limit=1_000, offset=count - count // 5),
        "first 100 by text": lambda table: table.scanner(columns=["id", "url"], order_by=["url"], limit=100).to_table(),
        "LIKE '%x%'": lambda table: table.to_table(filter="url LIKE '%/97/%'", columns=["id", "url"]),
        "take 1,000": lambda table: table.take(taken),
    }


def _indexed(rows: pa.Table) -> dict[str, Work]:
    columns = ["id", "fare", "part"]
    begin, end = (f"timestamp '{pc.strftime(rows['time'].drop_null()[at], format='%F %T').as_py()[:19]}'"
                  for at in (rows.num_rows // 2, rows.num_rows // 2 + rows.num_rows // 25))  # fmt: skip
    texts = ", ".join(f"'{url}'" for url in rows["url"].to_pylist()[:: rows.num_rows // 1_000])
    five = "fare > 5 AND code < 500 AND part = 'JFK' AND id % 3 = 1 AND flag"
    return {
        "count a flag": lambda table: table.count_rows("flag"),
        "count a range of times": lambda table: table.count_rows(f"time >= {begin} AND time < {end}"),
        "count five conditions": lambda table: table.count_rows(five),
        "4 % by time": lambda table: table.to_table(filter=f"time >= {begin} AND time < {end}", columns=columns),
        "1,000 texts": lambda table: table.to_table(filter=f"url IN ({texts})", columns=columns),
    }


def _of_texts() -> dict[str, Work]:
    def phrase(table: Any) -> Any:
        make = PhraseQuery if isinstance(table, lance_core.LanceDataset) else TheirPhrase
        return table.to_table(columns=["id"], full_text_query=make("word1 word2", "text"), limit=10)

    return {
        "best 10 of three words": lambda table: table.to_table(
            columns=["id"], full_text_query="word10 word200 word2000", limit=10
        ),
        "best 10 of a phrase": phrase,
    }


def queries(root: Path, scale: float, rounds: int) -> dict[str, Spent]:
    """Measure all queries; tables are opened, and what they ask has been asked before."""
    rows, texts = _rows(_fewer(NUM_ROWS, scale)), _texts(_fewer(NUM_TEXTS, scale))
    found = _measured(plain_calls(root, scale), rounds)
    found |= _measured(_calls(dict(_written(root / "indexed", rows, _KINDS)), _indexed(rows)), rounds)
    tables = dict(_written(root / "texts", texts, {"text": "INVERTED"}))
    return found | _measured(_calls(tables, _of_texts()), rounds)


def plain_calls(root: Path, scale: float) -> dict[str, dict[str, Callable[[], Any]]]:
    """For each query of tables without indices what each engine does."""
    rows = _rows(_fewer(NUM_ROWS, scale))
    return _calls(dict(_written(root / "plain", rows, {})), _plain(rows))


def _fewer(count: int, scale: float) -> int:
    return max(int(count * min(scale, 1)), 20_000)


def _written(folder: Path, rows: pa.Table, kinds: dict[str, str]) -> Iterator[tuple[str, Any]]:
    """Write a table by each engine, by pylance in all its file versions, and build indices."""
    made = {"lance_core": (lance_core, None), **{f"pylance-{version}": (lance, version) for version in _VERSIONS}}
    for name, (engine, version) in made.items():
        uri, size = str(folder / name), -(-rows.num_rows // NUM_FRAGMENTS)
        table = engine.write_dataset(rows, uri, max_rows_per_file=size, data_storage_version=version)
        for column, kind in kinds.items():
            table.create_scalar_index(column, kind, **({"with_position": True} if kind == "INVERTED" else {}))
        yield name, engine.dataset(uri)


def _calls(tables: dict[str, Any], works: dict[str, Work]) -> dict[str, dict[str, Callable[[], Any]]]:
    return {name: {engine: partial(work, table) for engine, table in tables.items()} for name, work in works.items()}


def _measured(works: dict[str, dict[str, Callable[[], Any]]], rounds: int) -> dict[str, Spent]:
    return {
        f"query: {name}": {engine: (spent.cpu, spent.wall) for engine, spent in compare(calls, rounds).items()}
        for name, calls in works.items()
    }
