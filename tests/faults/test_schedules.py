"""Every interleaving of two changes, and random ones of many: real commits over a store that decides who goes on.

Calls that no other program can notice are no occasion to switch, and schedules that meet in one state are followed on
once (`lance_core.testing.scheduler`), so that "all" is affordable. LANCE_TESTS=deep allows three interruptions for
every pair, with row ids of both kinds, and follows 100,000 random schedules in parts, which `-k` can spread over
processes.
"""

import os
import random
from functools import cache
from itertools import combinations_with_replacement

import pytest

from lance_core.testing.actions import ACTIONS, History, StateReader, in_turn, prepared
from lance_core.testing.scheduler import explore, run_randomly

IS_DEEP = os.environ.get("LANCE_TESTS") == "deep"
PREEMPTIONS = 3 if IS_DEEP else 1
pytestmark = [
    pytest.mark.timeout(0 if IS_DEEP else 300),
    pytest.mark.filterwarnings("ignore::lance_core.errors.IndexCoverageWarning"),
]
PAIRS = list(combinations_with_replacement(ACTIONS, 2))  # a search begins with either, so these are all ordered pairs
if not IS_DEEP:  # what differs little from others is let loose on a few
    ALIKE, PARTNERS = {"zone map", "b-tree", "moved tag", "dropped branch"}, {"append", "overwrite", "clean-up"}
    PAIRS = [pair for pair in PAIRS if not ALIKE & {*pair} or PARTNERS & {*pair}]
THOROUGH = [("append", "append"), ("append", "clean-up"), ("delete", "delete the same"), ("restore", "clean-up")]
SCHEDULES = 100_000 if IS_DEEP else 300
PARTS = 20 if IS_DEEP else 1
WRITERS, TURNS = 3, 2
FAST = ["append", "delete", "config", "drop column", "overwrite"]


READER = StateReader()
base_table = cache(prepared)


def walk(pair, preemptions, *, stable=True):
    base = base_table(stable_row_ids=stable)
    actions = [ACTIONS[name] for name in pair]
    programs = [action.program(number) for number, action in enumerate(actions)]
    return explore(base.copied, programs, History(actions=actions, reader=READER).check, preemptions=preemptions)


@pytest.mark.parametrize("pair", PAIRS, ids=" and ".join)
def test_all_interleavings(pair):
    assert walk(pair, PREEMPTIONS).schedules > 1
    if IS_DEEP:
        walk(pair, PREEMPTIONS, stable=False)


@pytest.mark.parametrize("pair", THOROUGH, ids=" and ".join)
def test_three_interruptions(pair):
    assert walk(pair, 3).schedules > 20


OTHERS = [("append", "append"), ("overwrite", "append")]
CHANGES = [name for name, action in ACTIONS.items() if action.effect is not None]
# The others take turns; each change meets both in deep.
MEETINGS = [(ours, others) for i, ours in enumerate(CHANGES) for others in (OTHERS if IS_DEEP else [OTHERS[i % 2]])]


@pytest.mark.parametrize(
    ("ours", "others"), MEETINGS, ids=lambda names: names if names in CHANGES else " and ".join(names)
)
def test_a_clean_up_frees_the_version_that_is_being_made(ours, others):
    """Two more changes and a clean-up that keeps nothing happen between any two calls of ours."""
    base = base_table()
    actions = [ACTIONS[name] for name in (ours, *others, "clean-up")]
    programs = [in_turn({0: actions[0]}), in_turn(dict(enumerate(actions[1:], 1)))]
    history = History(actions=actions, programs=[0, 1, 1, 1], reader=READER, may_be_unknown=True)

    def check(store, ends):
        history.check(store, flat(ends))

    done = explore(base.copied, programs, check, preemptions=1)
    assert done.schedules > 10


def flat(ends):
    """The outcomes of all actions of some programs."""
    for end in ends:
        if end.error is not None:
            raise end.error
    return [end.result[number] for end in ends for number in end.result]


def follow(base, seed, names, reader):
    """Three writers with two changes each, and a clean-up that runs twice and keeps nothing; what was acknowledged."""
    dice = random.Random(seed)
    actions = [ACTIONS[dice.choice(names)] for _ in range(WRITERS * TURNS)] + [ACTIONS["clean-up"]] * TURNS
    owners = [number // TURNS for number in range(len(actions))]
    programs = [
        in_turn({number: action for number, action in enumerate(actions) if owners[number] == owner})
        for owner in range(WRITERS + 1)
    ]
    store = base.copied()
    ends, schedule = run_randomly(store, programs, seed=seed, switch=dice.choice([0.1, 0.5, 0.9]))
    outcomes = flat(ends)
    history = History(actions=actions, programs=owners, reader=reader, may_be_unknown=True)
    try:
        history.check(store, outcomes)
    except BaseException as error:
        error.add_note(f"seed {seed}: {schedule.calls}")
        raise
    return sum(outcome.error is None for outcome in outcomes[:-TURNS])


@pytest.fixture
def far(monkeypatch):
    """Commits prepare as on object stores, before they look for the newest version; one call after the other."""
    monkeypatch.setattr("lance_core.table.commit.objects_at_once", lambda _: 2)


@pytest.mark.usefixtures("far")
@pytest.mark.parametrize("pair", [*THOROUGH, ("overwrite", "clean-up"), ("update", "delete")], ids=" and ".join)
def test_interleavings_of_commits_that_prepare_ahead(pair):
    assert walk(pair, PREEMPTIONS).schedules > 1


@pytest.mark.usefixtures("far")
@pytest.mark.parametrize("part", range(PARTS))
def test_random_schedules_of_commits_that_prepare_ahead(part):
    base, reader = prepared(), StateReader()
    landed = [follow(base, seed, FAST, reader) for seed in seeds(part, SCHEDULES // 3)]
    assert sum(landed) > len(landed) * WRITERS


def seeds(part, schedules):
    """The seeds of one part of so many schedules."""
    return range(part * schedules // PARTS, (part + 1) * schedules // PARTS)


def test_two_that_take_freed_numbers_are_no_proof_of_each_other():
    """An overwrite takes a freed number, and another one the freed number before it."""
    assert follow(prepared(), 96000, FAST, StateReader()) >= WRITERS


@pytest.mark.parametrize("seed", [17040, 45546, 73980])
def test_what_a_clean_up_takes_while_its_maker_looks_was_there(seed):
    """A delete and changes of the config whose versions and files went while they were looked for.

    In the last one somebody else took the freed number in the meantime.
    """
    assert follow(prepared(), seed, FAST, StateReader()) >= WRITERS


@pytest.mark.parametrize("part", range(PARTS))
def test_random_schedules_with_a_clean_up_that_keeps_nothing(part):
    base, reader = prepared(), StateReader()
    landed = [follow(base, seed, FAST, reader) for seed in seeds(part, SCHEDULES)]
    assert sum(landed) > len(landed) * WRITERS  # conflicts are allowed, but not the rule


@pytest.mark.parametrize("part", range(PARTS))
def test_random_schedules_of_all_changes(part):
    base, reader = prepared(), StateReader()
    for seed in seeds(part, SCHEDULES // 20):
        follow(base, -1 - seed, [name for name in ACTIONS if name != "clean-up"], reader)
