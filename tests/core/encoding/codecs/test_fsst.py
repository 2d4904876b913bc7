"""Symbol tables: chosen, written, and texts in their codes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_core.encoding.codecs import fsst, symbol_table
from lance_core.encoding.values import VariableValues

some = settings(derandomize=True, deadline=None, max_examples=60)
WORDS = ["connection ", "accepted ", "from ", "worker ", "timeout ", "retry ", "queue ", "error "]


def values_of(texts, dtype=np.int32):
    offsets = np.append(0, np.cumsum([len(text) for text in texts])).astype(dtype)
    return VariableValues(offsets, np.frombuffer(b"".join(texts), np.uint8))


def texts_of(values):
    data = values.data.tobytes()
    return [data[low:high] for low, high in zip(values.offsets[:-1], values.offsets[1:], strict=True)]


def symbols_of(table):
    lengths, symbols = symbol_table.parse_table(table)
    return [
        symbol.to_bytes(8, "little")[:length] for length, symbol in zip(lengths.tolist(), symbols.tolist(), strict=True)
    ]


def slow_decode(table, codes):
    """One text, code by code."""
    symbols = symbols_of(table)
    out, at = [], 0
    while at < len(codes):
        is_literal = codes[at] == 255
        out.append(codes[at + 1 : at + 2] if is_literal else symbols[codes[at]])
        at += 2 if is_literal else 1
    return b"".join(out)


def logs(count, seed=0):
    rng = np.random.default_rng(seed)
    return ["".join(WORDS[one] for one in row).encode() for row in rng.integers(0, len(WORDS), (count, 8)).tolist()]


pieces = st.one_of(
    st.binary(max_size=12), st.sampled_from([b"", b"\0\0\0\0", b"\xff" * 3, b"the ", b"then ", b"there "])
)
texts = st.lists(st.lists(pieces, max_size=6).map(b"".join), min_size=1, max_size=40)


@some
@given(texts, st.integers(1, 60), st.booleans())
def test_what_is_encoded_decodes(parts, times, is_wide):
    parts = parts * times
    values = values_of(parts, np.int64 if is_wide else np.int32)
    table, codes = fsst.encode(values)
    if table is None:
        assert codes is values
        return
    assert codes.offsets.dtype == values.offsets.dtype
    assert len(codes.data) + len(table) < len(values.data)
    assert [slow_decode(table, code) for code in texts_of(codes)] == parts
    assert texts_of(fsst.decode(table, codes)) == parts


@pytest.mark.parametrize("length", [1, 7, 8, 127, 128, 129, 100_000])
def test_texts_of_every_length(length):
    text = (b"".join(logs(2000)) * 2)[:length]
    parts = [text, b"", text[::-1], *logs(300)]
    table, codes = fsst.encode(values_of(parts))
    assert texts_of(fsst.decode(table, codes)) == parts


def test_repetitive_texts_become_small():
    values = values_of(logs(3000))
    _, codes = fsst.encode(values)
    assert len(codes.data) < len(values.data) / 4


def test_texts_that_gain_nothing_stay_as_they_are():
    noise = values_of([np.random.default_rng(one).bytes(50) for one in range(200)])
    for values in (noise, values_of([b"", b""]), values_of([b"abc"])):
        assert fsst.encode(values) == (None, values)


def test_the_same_texts_give_the_same_codes():
    first, second = (fsst.encode(values_of(logs(500))) for _ in range(2))
    assert first[0] == second[0]
    assert np.array_equal(first[1].data, second[1].data)


def test_texts_that_begin_within_their_data():
    whole = values_of([b"skipped", *logs(500)])
    table, codes = fsst.encode(VariableValues(whole.offsets[1:], whole.data))
    assert texts_of(fsst.decode(table, codes)) == logs(500)


def test_tables_on_disk():
    table = symbol_table.train(*_adjoining(logs(500)))
    data = symbol_table.encode_table(table.symbols)
    assert len(data) == symbol_table.TABLE_BYTES
    assert data[4:8] == b"TSSF"
    assert symbols_of(data) == list(table.symbols)
    assert 0 < len(table.symbols) <= symbol_table.MAX_SYMBOLS
    assert symbol_table.parse_table(symbol_table.encode_table(())) is None


def test_bytes_behind_a_symbol_do_not_matter(monkeypatch):
    """Other writers may leave anything there; codes that are looked up in pairs do not read it either."""
    monkeypatch.setattr(fsst, "_PAIRS_PAY_AT", 4)
    table = bytearray(symbol_table.encode_table([b"ab", b"c"]))
    table[8:24] = b"ab" + b"x" * 6 + b"c" + b"y" * 7
    assert texts_of(fsst.decode(bytes(table), values_of([b"\0\1\0", b"\1\1"]))) == [b"abcab", b"cc"]


@pytest.mark.parametrize("pairs_pay_at", [1 << 17, 1 << 6])
def test_pages_with_tables_of_their_own_decode_as_one(monkeypatch, pairs_pay_at):
    """Also those with an odd number of codes, with literals, without rows and with bytes that are no codes."""
    monkeypatch.setattr(fsst, "_PAIRS_PAY_AT", pairs_pay_at)
    escaped = [b"\xff\xf7", b"\x00", b"", b"\x01\xff\x00"]
    pages = [(symbol_table.encode_table([b"first", b"second"]), escaped), (symbol_table.encode_table([b"none"]), [])]
    for seed in range(3):
        table, codes = fsst.encode(values_of(logs(300 + seed, seed)))
        pages.append((table, texts_of(codes)))
    pages += [(symbol_table.encode_table([]), [b"as it is", b"\xff"]), pages[0]]
    bounds = np.cumsum([0] + [len(page) for _, page in pages])
    got = fsst.decode_pages(
        [table for table, _ in pages], bounds, values_of([text for _, page in pages for text in page])
    )
    assert texts_of(got) == [text for table, page in pages for text in texts_of(fsst.decode(table, values_of(page)))]
    assert texts_of(got)[:4] == [b"\xf7", b"first", b"", b"second\0"]
    assert got.offsets.dtype == np.int32


def _adjoining(parts):
    values = values_of(parts)
    return values.data, values.offsets[:-1].astype(np.int64), np.diff(values.offsets).astype(np.int64)


def test_symbols_do_not_run_over_the_end_of_a_text():
    table = symbol_table.build([b"abcd", b"ab", b"a"])
    cut = symbol_table.cut(np.frombuffer(b"abcabcd", np.uint8), np.array([3, 4]))
    tokens, counts = symbol_table.take_apart(table, cut)
    assert [table.symbols[one] if one < 256 else one - 256 for one in tokens.tolist()] == [b"ab", ord("c"), b"abcd"]
    assert counts.tolist() == [2, 1]


def test_a_table_holds_no_more_than_255_symbols():
    candidates = [bytes((one, other, 7)) for one in range(40) for other in range(40)]
    table = symbol_table.build(candidates)
    assert len(table.symbols) == 255
    assert len(set(table.symbols)) == 255


@pytest.mark.parametrize("extra", [b"", b"\xf7"])
@pytest.mark.parametrize("block", [1 << 21, 1 << 13, 1000])
def test_many_codes_are_looked_up_in_pairs(monkeypatch, extra, block):
    monkeypatch.setattr(fsst, "_TEXTS_IN_CACHE", block)
    monkeypatch.setattr(fsst, "_PAIRS_PAY_AT", 1 << 10)
    parts = logs(9000)
    table, codes = fsst.encode(values_of(parts))
    assert len(codes.data) > 1 << 15
    assert 255 not in codes.data
    escaped = [bytes([255, one]) for one in extra]
    with_extra = values_of([*escaped, *texts_of(codes), *escaped])
    assert texts_of(fsst.decode(table, with_extra)) == [extra] * len(extra) + parts + [extra] * len(extra)


def test_a_table_is_taken_apart_once(monkeypatch):
    table, codes = fsst.encode(values_of(logs(300, seed=77)))
    one = VariableValues(codes.offsets[:2], codes.data)
    first = texts_of(fsst.decode(table, one))
    monkeypatch.setattr(symbol_table, "_MAGIC", b"none")
    assert texts_of(fsst.decode(bytes(bytearray(table)), one)) == first


@pytest.mark.parametrize("num_symbols", [3, 254, 255])
@pytest.mark.parametrize("length", [1, 2])
@pytest.mark.parametrize("texts", [[b"", b"\x00\x01\x02"], [b"\xff\x07\x02", b"\xff\xff", b"\x01\xff\x00\x00"]])
def test_literals_beside_tables_of_any_size(num_symbols, length, texts):
    """A literal borrows the code of a lone byte, or one without symbol, or needs wider codes."""
    symbols = [number.to_bytes(2, "big").rjust(length, b"a")[:2] for number in range(300, 300 + num_symbols)]
    symbols = [one[-length:] if number == 1 else one for number, one in enumerate(symbols)]
    table = symbol_table.encode_table(symbols)
    assert texts_of(fsst.decode(table, values_of(texts))) == [slow_decode(table, text) for text in texts]
