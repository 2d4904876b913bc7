"""Decides which of several programs makes its next store call: all interleavings in turn, or random ones.

Each program runs in a thread of its own over one `MemoryStore`, and only one of them runs at a time: before a call that
the others could notice, or whose answer they could change, it may have to wait while another one goes on. What a
program takes from the outside world (uuids, chance, time) depends on nothing but the program, so that a schedule can
be repeated, and two schedules that lead to the same state need not both be followed: a state is what is in the store
and what each program has been told by it.
"""

from __future__ import annotations

import random
import threading
import uuid
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar
from unittest import mock

from lance_core.common.frozen import frozen
from lance_core.table.runtime import SYSTEM_RUNTIME, Runtime

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    import pyarrow as pa

    from lance_core.store.base import ObjectInfo, ObjectReader, ObjectWriter, Store
    from lance_core.store.memory import MemoryStore

_T = TypeVar("_T")
_U63 = (1 << 63) - 1
_PRIVATE_FOLDERS = ("data/", "_deletions/", "_transactions/")

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
"""What the clocks of programs say unless told otherwise."""


class Abandoned(BaseException):
    """A schedule leads to nothing new: its programs are to end at once."""


@frozen(kw_only=True)
class Program:
    """Work of one actor.

    Attributes:
        work: Given the store; what it returns or raises is its outcome.
        now: What its clock says, all the time.
        sees_all: It lists or deletes files of others, as a clean-up does. If no program does, nobody can notice when
            files of a name that only one program knows come and go, and these calls are no occasion to switch.
    """

    work: Callable[[Store], Any]
    now: datetime = EPOCH
    sees_all: bool = False


@frozen(kw_only=True)
class Outcome:
    """Result of a program.

    Attributes:
        result: What it returned.
        error: What it raised; None if it returned.
    """

    result: Any = None
    error: BaseException | None = None


@dataclass(slots=True, kw_only=True)
class Exploration:
    """Result of an exploration.

    Attributes:
        schedules: Schedules that were followed to their end.
        abandoned: Schedules that met a state from which all had been explored already.
    """

    schedules: int = 0
    abandoned: int = 0


def explore(
    make_store: Callable[[], MemoryStore],
    programs: Sequence[Program],
    check: Callable[[MemoryStore, Sequence[Outcome]], None],
    *,
    preemptions: int,
) -> Exploration:
    """Follow all schedules in which a program is interrupted at most so many times.

    Args:
        make_store: A store as it is at the beginning.
        programs: What runs at the same time.
        check: Raises if a store and the programs' outcomes are not as they must be; is told of each different end.
        preemptions: How often a program that could go on has to wait for another one.
    """
    done = Exploration()
    seen: dict[Any, int] = {}
    open_prefixes: list[tuple[int, ...]] = [()]
    while open_prefixes:
        search = _Search(open_prefixes.pop(), seen, open_prefixes, preemptions)
        schedule = Schedule(make_store(), programs, search.choose)
        outcomes = schedule.run()
        if outcomes is None:
            done.abandoned += 1
            continue
        done.schedules += 1
        try:
            check(schedule.store, outcomes)
        except BaseException as error:
            error.add_note(f"schedule {search.trace}: {schedule.calls}")
            raise
    return done


def run_randomly(
    store: MemoryStore, programs: Sequence[Program], *, seed: int, switch: float = 0.5
) -> tuple[Sequence[Outcome], Schedule]:
    """Follow one random schedule.

    Args:
        store: Where they work.
        programs: What runs at the same time.
        seed: Another number, another schedule.
        switch: How likely it is that another program goes on.
    """
    dice = random.Random(seed)  # noqa: S311 reproducible, not cryptographic

    def choose(schedule: Schedule, current: int | None) -> int:
        if current is not None and dice.random() >= switch:
            return current
        return dice.choice(schedule.runnable)

    schedule = Schedule(store, programs, choose)
    outcomes = schedule.run()
    if outcomes is None:
        raise AssertionError("only a search abandons schedules")
    return outcomes, schedule


@dataclass(slots=True)
class _Search:
    """One schedule of a depth-first search: it follows a prefix, then goes straight on and notes where it could not."""

    prefix: tuple[int, ...]
    seen: dict[Any, int]
    open_prefixes: list[tuple[int, ...]]
    preemptions: int
    trace: list[int] = field(default_factory=list[int])

    def choose(self, schedule: Schedule, current: int | None) -> int:
        runnable = schedule.runnable
        turn = len(self.trace)
        if turn < len(self.prefix):
            choice = self.prefix[turn]
        else:
            key = (current, schedule.state())
            if self.seen.get(key, -1) >= self.preemptions:
                schedule.abandon()
            self.seen[key] = self.preemptions
            choice = runnable[0] if current is None else current
            if current is None or self.preemptions:
                begun = tuple(self.trace)
                self.open_prefixes.extend((*begun, other) for other in runnable if other != choice)
        self.preemptions -= current is not None and choice != current
        self.trace.append(choice)
        return choice


class Schedule:
    """One run of some programs.

    Args:
        store: Where they work.
        programs: The programs.
        choose: Given this object and the number of the program that is about to make a call (None if one has just
            ended, or none has begun), tells which one goes on.
    """

    def __init__(
        self, store: MemoryStore, programs: Sequence[Program], choose: Callable[[Schedule, int | None], int]
    ) -> None:
        self.store = store
        self.calls: list[tuple[int, str, str]] = []
        self.content = 0
        self.sees_all = any(program.sees_all for program in programs)
        self._choose = choose
        self._is_abandoned = False
        self._ended = threading.Event()
        self.agents = [_Agent(self, number, program) for number, program in enumerate(programs)]

    @property
    def runnable(self) -> list[int]:
        """Numbers of the programs that have not ended."""
        return [agent.number for agent in self.agents if agent.outcome is None]

    def state(self) -> tuple[Any, ...]:
        """Return all that decides how it goes on."""
        return (self.content, *((agent.told, agent.outcome is None) for agent in self.agents))

    def run(self) -> list[Outcome] | None:
        """Return the results of the programs; None if the schedule was abandoned."""
        with _own_worlds():
            threads = [threading.Thread(target=agent.run, daemon=True) for agent in self.agents]
            for thread in threads:
                thread.start()
            self._go_on(None)
            self._ended.wait()
            for thread in threads:
                thread.join()
        outcomes = [agent.outcome for agent in self.agents if agent.outcome is not None]
        return None if self._is_abandoned else outcomes

    def abandon(self) -> None:
        """End all programs, this one first."""
        self._is_abandoned = True
        raise Abandoned

    def before_call(self, agent: _Agent) -> None:
        """Let another program go on if it is its turn."""
        if self._is_abandoned:
            raise Abandoned
        chosen = self._choose(self, agent.number)
        if chosen != agent.number:
            self.agents[chosen].gate.release()
            agent.gate.acquire()
        if self._is_abandoned:
            raise Abandoned

    def after_end(self) -> None:
        """A program has ended: another one goes on."""
        if self.runnable:
            self._go_on(None)
        else:
            self._ended.set()

    def _go_on(self, current: int | None) -> None:
        chosen = self.runnable[0]
        if not self._is_abandoned:
            try:
                chosen = self._choose(self, current)
            except Abandoned:
                chosen = self.runnable[0]
        self.agents[chosen].gate.release()

    @property
    def is_abandoned(self) -> bool:
        """Return whether the programs are to end."""
        return self._is_abandoned


class _Agent:
    """A program that runs. ``told`` stands for all answers it got."""

    def __init__(self, schedule: Schedule, number: int, program: Program) -> None:
        self.schedule = schedule
        self.number = number
        self.program = program
        self.gate = threading.Semaphore(0)
        self.told: int = number
        self.outcome: Outcome | None = None
        self.num_ids = 0

    def run(self) -> None:
        _HERE.agent = self
        self.gate.acquire()
        try:
            if self.schedule.is_abandoned:
                raise Abandoned  # noqa: TRY301 one way out
            outcome = Outcome(result=self.program.work(ScheduledStore(self)))
        except BaseException as error:  # noqa: BLE001 whatever it was, it is how the program ended
            outcome = Outcome(error=error)
        self.outcome = outcome
        self.schedule.after_end()

    def next_id(self) -> int:
        """Return a number below 2^63 that no other program gets."""
        self.num_ids += 1
        return (self.number + 1) << 48 | self.num_ids

    def tell(self, *answer: Any) -> None:
        """Remember an answer."""
        self.told = hash((self.told, answer))


class ScheduledStore:
    """The store as one program sees it.

    Args:
        agent: The program.
    """

    def __init__(self, agent: _Agent) -> None:
        self._agent = agent
        self._schedule = agent.schedule
        self._inner = agent.schedule.store

    @property
    def uri(self) -> str:
        """Address of the store."""
        return self._inner.uri

    def reader(self, path: str, /) -> ObjectReader:
        """Open an object."""
        reader = self._call("reader", path, lambda: self._inner.reader(path))
        self._agent.tell(self._inner.get(path))
        return reader

    def get(self, path: str, /) -> bytes:
        """Read a whole object."""
        data = self._call("get", path, lambda: self._inner.get(path))
        self._agent.tell(data)
        return data

    def writer(self, path: str, /) -> ObjectWriter:
        """Begin an object; nobody notices before it is finished."""
        return _ScheduledWriter(self, self._inner.writer(path), path)

    def put(self, path: str, data: bytes, /) -> None:
        """Write a whole object."""
        self._call("put", path, lambda: self._changed([path], lambda: self._inner.put(path, data)))

    def put_if_absent(self, path: str, data: bytes, /) -> bool:
        """Create an object."""
        return self._call(
            "put_if_absent", path, lambda: self._changed([path], lambda: self._inner.put_if_absent(path, data))
        )

    def names(self, folder: str, /) -> list[str]:
        """List names."""
        names_ = self._call("names", folder, lambda: sorted(self._inner.names(folder)))
        self._agent.tell(*names_)
        return names_

    def list(self, prefix: str, /) -> Iterator[ObjectInfo]:
        """List objects."""
        infos = self._call("list", prefix, lambda: list(self._inner.list(prefix)))
        self._agent.tell(*((info.path, info.size, info.modified) for info in infos))
        return iter(infos)

    def delete(self, paths: Sequence[str], /) -> None:
        """Delete objects, one after the other."""
        for path in paths:
            self._call("delete", path, lambda path=path: self._changed([path], lambda: self._inner.delete([path])))

    def finish(self, writer: ObjectWriter, path: str) -> int:
        """Let an object appear."""
        return self._call("commit", path, lambda: self._changed([path], writer.commit))

    def _call(self, method: str, path: str, work: Callable[[], _T]) -> _T:
        agent = self._agent
        if getattr(_HERE, "agent", None) is agent and not self._is_unnoticed(method, path):
            self._schedule.before_call(agent)
        self._schedule.calls.append((agent.number, method, path))
        try:
            result = work()
        except Exception as error:
            agent.tell(method, path, type(error))
            raise
        agent.tell(method, path, result if isinstance(result, bool) else None)
        return result

    def _is_unnoticed(self, method: str, path: str) -> bool:
        """Return whether it makes no difference to any program if this call comes earlier or later."""
        if self._schedule.sees_all or method in {"names", "list"}:
            return False
        folder = path.startswith(_PRIVATE_FOLDERS) or any(f"/{folder}" in path for folder in _PRIVATE_FOLDERS)
        # A manifest that is there stays as it is.
        return folder or (method in {"get", "reader"} and path.endswith(".manifest") and self._content(path) != b"")

    def _changed(self, paths: Sequence[str], change: Callable[[], _T]) -> _T:
        before = [self._content(path) for path in paths]
        result = change()
        for path, old in zip(paths, before, strict=True):
            self._schedule.content ^= hash((path, old)) ^ hash((path, self._content(path)))
        return result

    def _content(self, path: str) -> bytes:
        return self._inner.find(path) or b""


class _ScheduledWriter:
    def __init__(self, store: ScheduledStore, inner: ObjectWriter, path: str) -> None:
        self._store = store
        self._inner = inner
        self._path = path

    def write(self, data: bytes | memoryview | pa.Buffer) -> None:
        self._inner.write(data)

    def commit(self) -> int:
        return self._store.finish(self._inner, self._path)

    def abort(self) -> None:
        self._inner.abort()


# ---------------------------------------------------------------------------------------------- worlds of the programs

_HERE = threading.local()
_NEW_UUID = uuid.uuid4


def program_of(text: str) -> int | None:
    """Return number of the program that made a uuid; None if none did."""
    number = (uuid.UUID(text).int >> 100) - 1
    return number if 0 <= number < 1 << 16 else None


def _uuid() -> uuid.UUID:
    agent: _Agent | None = getattr(_HERE, "agent", None)
    return _NEW_UUID() if agent is None else uuid.UUID(int=(agent.number + 1) << 100 | agent.next_id())


def _uuid_text(_: Runtime) -> str:
    return str(_uuid())


def _of_agent(name: str, answer: Callable[[_Agent], Any]) -> tuple[str, Callable[..., Any], Callable[..., Any]]:
    usual = getattr(SYSTEM_RUNTIME, name)

    def choose(*arguments: Any) -> Any:
        agent: _Agent | None = getattr(_HERE, "agent", None)
        return usual(*arguments) if agent is None else answer(agent)

    return name, usual, choose


_WORLD = [
    _of_agent("now", lambda agent: agent.program.now),
    _of_agent("monotonic_s", lambda _: 0.0),
    _of_agent("thread_cpu_s", lambda _: 0.0),
    _of_agent("sleep_s", lambda _: None),
    _of_agent("random_u63", lambda agent: agent.next_id() & _U63),
]


@contextmanager
def _own_worlds() -> Generator[None]:
    """Programs take uuids, time and chance from worlds of their own; the rest of the process notices nothing."""
    for name, _, choose in _WORLD:
        object.__setattr__(SYSTEM_RUNTIME, name, choose)
    try:
        with mock.patch.object(uuid, "uuid4", _uuid), mock.patch.object(Runtime, "new_uuid", _uuid_text):
            yield
    finally:
        for name, usual, _ in _WORLD:
            object.__setattr__(SYSTEM_RUNTIME, name, usual)
