from hypothesis import given
from hypothesis import strategies as st

from lance_core.store.coalesce import plan_reads

RANGES = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 60)).map(lambda one: (one[0], sum(one))), max_size=30)


def spans(ranges, **knobs):
    return [(span.start, span.end) for span in plan_reads(ranges, **knobs).spans]


def test_near_ranges_become_one():
    assert spans([(10, 20), (25, 30)], max_gap=5) == [(10, 30)]
    assert spans([(10, 20), (26, 30)], max_gap=5) == [(10, 20), (26, 30)]
    assert spans([(25, 30), (10, 20), (12, 14)], max_gap=5) == [(10, 30)]
    assert spans([(0, 100), (10, 20), (101, 102)], max_gap=1) == [(0, 102)]


def test_large_ranges_are_cut():
    (span,) = plan_reads([(0, 25)], max_request=10).spans
    assert span.requests == ((0, 8), (8, 16), (16, 25))
    (span,) = plan_reads([(3, 13)], max_request=10).spans
    assert span.requests == ((3, 13),)


def test_empty_ranges_cost_nothing():
    plan = plan_reads([(7, 7), (3, 4), (0, 0)])
    assert plan.span_of == (-1, 0, -1)
    assert plan_reads([]).spans == ()


@given(RANGES, st.integers(0, 20), st.integers(1, 40))
def test_plans_cover_what_is_wanted_and_little_else(ranges, max_gap, max_request):
    plan = plan_reads(ranges, max_gap=max_gap, max_request=max_request)
    wanted = {byte for start, end in ranges for byte in range(start, end)}
    read = [byte for span in plan.spans for start, end in span.requests for byte in range(start, end)]
    assert len(read) == len(set(read))
    assert read == sorted(read)
    assert wanted <= set(read)
    for (start, end), number in zip(ranges, plan.span_of, strict=True):
        if number >= 0:
            assert plan.spans[number].start <= start < end <= plan.spans[number].end
        else:
            assert start == end
    for before, after in zip(plan.spans, plan.spans[1:], strict=False):
        assert after.start - before.end > max_gap
    for span in plan.spans:
        assert all(0 < end - start <= max_request for start, end in span.requests)
        gap = 0
        for byte in range(span.start, span.end):
            gap = 0 if byte in wanted else gap + 1
            assert gap <= max_gap
