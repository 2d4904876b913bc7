"""Arrow's kernels are called without the module that wraps them, which takes long to import, where that is possible."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lance_core
from lance_core.sql import kernels
from lance_core.sql.kernels import ValueSet, _late, nulls_as_false

NUMBERS, OTHERS = pa.array([1, None, 3]), pa.array([2, 2, None])
TEXTS, FLAGS = pa.array(["a b", None, " c"]), pa.array([True, None, False])
CALLS = [
    ("greater", (NUMBERS, OTHERS), {}),
    ("equal", (NUMBERS, pa.scalar(3)), {}),
    ("equal", (NUMBERS, 3), {}),
    ("add", (NUMBERS, 1), {}),
    ("and_", (FLAGS, FLAGS), {}),
    ("or_kleene", (FLAGS, FLAGS), {}),
    ("invert", (FLAGS,), {}),
    ("is_null", (NUMBERS,), {}),
    ("is_null", (NUMBERS,), {"nan_is_null": True}),
    ("round", (pa.array([1.25, None]), 1), {}),
    ("take", (NUMBERS, pa.array([2, 0])), {}),
    ("coalesce", (NUMBERS, pa.scalar(0)), {}),
    ("if_else", (FLAGS, NUMBERS, OTHERS), {}),
    ("utf8_upper", (TEXTS,), {}),
    ("starts_with", (TEXTS, "a"), {}),
    ("is_in", (NUMBERS,), {"value_set": OTHERS}),
    ("cast", (NUMBERS, pa.float32()), {}),
    ("cast", (pa.scalar(1), pa.int8()), {}),
    ("cast", (pa.array([1.5]), pa.int8()), {"safe": False}),
    ("cast", (pa.array([1.5]),), {"options": pyarrow.compute.CastOptions(pa.int8(), allow_float_truncate=True)}),
]

PROGRAM = """
import sys
import lance_core
found = lance_core.dataset(sys.argv[1]).to_table(filter="n > 10 AND NOT n = 12 OR n IS NULL")
assert found["n"].to_pylist() == [11, *range(13, 20), None], found
assert "pyarrow.compute" not in sys.modules
assert lance_core.dataset(sys.argv[1]).count_rows("starts_with(t, 'x1') AND n IN (1, 2, 10)") == 2
"""


@pytest.mark.parametrize(("name", "values", "options"), CALLS)
def test_a_kernel_gives_what_the_function_of_its_name_gives(name, values, options):
    answer, expected = _late(name)(*values, **options), getattr(pyarrow.compute, name)(*values, **options)
    assert answer.equals(expected)


def test_a_cast_that_loses_something_fails():
    with pytest.raises(pa.ArrowInvalid):
        _late("cast")(pa.array([1.5]), pa.int8())


@pytest.mark.parametrize("name", ["CastOptions", "Expression", "fill_null"])
def test_what_is_no_kernel_is_left_to_the_module(name):
    assert _late(name) is None


@pytest.mark.slow
def test_the_first_comparisons_of_a_process_import_no_functions(tmp_path):
    table = pa.table({"n": [*range(20), None], "t": [f"x{n}" for n in range(21)]})
    lance_core.write_dataset(table, tmp_path / "t")
    subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path / "t")], check=True)


@pytest.mark.parametrize(
    "answer",
    [FLAGS, FLAGS.slice(1), pa.array([True, False]), pa.nulls(3), pa.array([], pa.bool_()), pa.nulls(0)],
    ids=["nulls", "slice", "without nulls", "of type null", "empty", "empty of type null"],
)
def test_nulls_of_an_answer_are_false(answer: pa.Array) -> None:
    filled = nulls_as_false(answer)

    assert filled.equals(pa.array([value is True for value in answer.to_pylist()], pa.bool_()))


def test_a_null_scalar_is_false() -> None:
    assert nulls_as_false(pa.scalar(None, pa.bool_())).as_py() is False


_KINDS = [pa.int8(), pa.uint16(), pa.int32(), pa.int64(), pa.uint64(), pa.float32(), pa.float64(), pa.date32()]
_TIMES = [pa.timestamp("us", "UTC"), pa.time64("ns")]
_OTHERS = [*_TIMES, pa.decimal128(12, 0), pa.string(), pa.bool_()]


@given(
    kind=st.sampled_from([*_KINDS, *_OTHERS]),
    most=st.sampled_from([2, 50, 120]),
    members=st.lists(st.integers(0, 120), min_size=1, max_size=300, unique=True),
    seed=st.integers(0, 9),
    cut=st.tuples(st.integers(0, 70), st.integers(0, 70)),
)
@settings(max_examples=80, deadline=None)
def test_members_are_those_that_arrow_finds(kind, most, members, seed, cut):
    rng = np.random.default_rng(seed)
    numbers = pa.array(rng.integers(0, most, 3_000).astype(np.int32), mask=rng.random(3_000) < seed / 20)
    values, sought = (
        (array.cast(pa.int64()) if kind in _TIMES else array).cast(kind)
        for array in (numbers, pa.array(members, pa.int32()))
    )
    values = values.slice(cut[0], 3_000 - sum(cut))
    wanted = pyarrow.compute.is_in(values, value_set=sought)
    is_valid = values.is_valid()
    found = ValueSet(sought).mask(values)
    assert len(found) == len(values)
    assert found.null_count == 0
    assert found.filter(is_valid).equals(wanted.filter(is_valid))


def test_few_values_are_left_for_arrow(monkeypatch):
    looked_up, compute = [], kernels.pc

    class Counting:
        def __getattr__(self, name):
            if name == "is_in":
                return lambda values, value_set: (
                    looked_up.append(len(values)) or compute.is_in(values, value_set=value_set)
                )
            return getattr(compute, name)

    members = ValueSet(pa.array(range(0, 100_000, 100)))
    monkeypatch.setattr(kernels, "pc", Counting())
    assert members.mask(pa.array(range(50_000))).true_count == 500
    assert len(looked_up) == 1
    assert looked_up[0] < 3_000
