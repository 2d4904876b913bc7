"""Changes that programs make to one small table, and what each must have made of it.

`prepared` makes the table: keys 0 to 3 in two fragments. An action takes the store and the number of the program that
carries it out, so that two programs may do the same with values of their own; its effect says the same for a
`State`. A history is right if every version holds what the effects of its makers make of the first one.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lance_core.change.delete import removing_staged
from lance_core.change.retries import new_transaction
from lance_core.change.stage import FileLimits, stage_data
from lance_core.common.frozen import frozen
from lance_core.dataset import LanceDataset
from lance_core.errors import CommitOutcomeUnknownError, LanceError
from lance_core.format.table.manifest import manifest_files
from lance_core.format.table.operations import Append, Operation, Overwrite, ReserveFragments
from lance_core.format.table.paths import TRANSACTIONS_FOLDER
from lance_core.maintenance.cleanup import cleanup_old_versions
from lance_core.maintenance.cleanup_plan import References
from lance_core.store.memory import MemoryStore
from lance_core.table.branches import list_branches
from lance_core.table.commit import commit
from lance_core.table.idempotency import find_commit, with_key
from lance_core.table.refs import list_tags_strictly, other_branch
from lance_core.table.runtime import SYSTEM_RUNTIME, Runtime
from lance_core.table.snapshot import Snapshot, find_versions, open_snapshot, read_transaction
from lance_core.testing.scheduler import EPOCH, Outcome, Program, program_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from lance_core.store.base import Store

_LIMITS = FileLimits(max_rows_per_file=2, max_bytes_per_file=1 << 30)
_LATER = EPOCH + timedelta(hours=1)
_THEN = Runtime(now=lambda: EPOCH)
_MANY_RETRIES = 100
_KEY: ContextVar[str | None] = ContextVar("key", default=None)


@frozen(kw_only=True)
class State:
    """Expected content of a version.

    Attributes:
        columns: Names of the columns.
        rows: Values of each row by key; columns that a row lacks are null.
        config: Settings.
    """

    columns: tuple[str, ...]
    rows: Mapping[int, Mapping[str, Any]]
    config: Mapping[str, str] = field(default_factory=dict[str, str])

    def plain(self) -> tuple[Any, ...]:
        """Return the same in a form that can be compared."""
        rows = [tuple(row.get(name) for name in self.columns) for _, row in sorted(self.rows.items())]
        return self.columns, rows, dict(self.config)


def read_state(snapshot: Snapshot) -> State:
    """Read the content of a version.

    Raises:
        AssertionError: Keys, row ids or ids of fragments are not unique.
    """
    dataset = LanceDataset("memory", snapshot=snapshot)
    rows = dataset.to_table(with_row_id=True).to_pylist()
    ids = [row.pop("_rowid") for row in rows]
    fragments = dataset.snapshot.manifest.fragments.ids.tolist()
    for what in (ids, fragments, [row["k"] for row in rows]):
        if len(set(what)) < len(what):
            raise AssertionError(f"version {dataset.version} has something twice: {what}")
    columns = tuple(dataset.schema.names)
    return State(columns=columns, rows={row["k"]: row for row in rows}, config=dataset.config())


class StateReader:
    """Reads versions; files of the same content are read once, whichever store they are in."""

    def __init__(self) -> None:
        self._states_by_content: dict[Any, State] = {}

    def read(self, snapshot: Snapshot, store: MemoryStore) -> State:
        """As `read_state`, for a version of a branch in a store.

        Raises:
            AssertionError: A file is missing.
        """
        needed = References()
        needed.add(manifest_files(snapshot.manifest))
        paths = [path for path in needed.paths if not path.startswith(TRANSACTIONS_FOLDER)]
        paths = [path for path in paths if not path.endswith("/")]
        if any(store.find(path) is None for path in paths):
            raise AssertionError(f"version {snapshot.version} lacks one of {sorted(paths)}")
        files = {path: store.get(path) for path in paths}
        key = (snapshot.manifest.version, tuple(snapshot.manifest.fragments.records), frozenset(files.items()))
        key = (*key, repr(snapshot.manifest.schema), tuple(sorted(snapshot.manifest.config.items())))
        if key not in self._states_by_content:
            self._states_by_content[key] = read_state(snapshot)
        return self._states_by_content[key]


@frozen(kw_only=True)
class History:
    """Judges what some actions made of the prepared table.

    Attributes:
        actions: What was done, one after the other or at the same time.
        programs: Number of the program that did each; the first did the first, and so on, if None.
        reader: Reads versions.
        may_be_unknown: A commit may say that it does not know whether it landed.
    """

    actions: Sequence[Action]
    programs: Sequence[int] | None = None
    reader: StateReader = field(default_factory=StateReader)
    may_be_unknown: bool = False

    def check(self, store: MemoryStore, outcomes: Sequence[Outcome]) -> None:
        """Look at all versions, tags and branches.

        Args:
            store: The table.
            outcomes: Of each action.

        Raises:
            AssertionError: Something acknowledged is missing or there twice, something that failed is there, or a
                version is not what its makers make of the one before.
        """
        for outcome in outcomes:
            error = outcome.error
            if error is not None and (not isinstance(error, LanceError) or self._is_unknown(error)):
                raise error
        versions = find_versions(store).numbers
        states = self._states(store, outcomes, versions)
        for version in versions:
            if version not in states:
                continue
            observed = self.reader.read(open_snapshot(store, version), store)
            if observed.plain() != states[version].plain():
                raise AssertionError(f"version {version} holds {observed.plain()}, not {states[version].plain()}")
        for tag in list_tags_strictly(store):
            read_state(open_snapshot(store, tag.version))
        for branch in list_branches(store):
            observed = read_state(open_snapshot(other_branch(store, branch.name)))
            if observed.plain() != states[branch.parent_version].plain():
                raise AssertionError(f"branch {branch.name} holds {observed.plain()}")
        if not any(action.is_clean_up for action in self.actions):
            self._check_leftovers(store, versions)

    def _is_unknown(self, error: BaseException) -> bool:
        return isinstance(error, CommitOutcomeUnknownError) and not self.may_be_unknown

    def _states(self, store: MemoryStore, outcomes: Sequence[Outcome], versions: Sequence[int]) -> dict[int, State]:
        """Return the expected content of each version, by its maker and by the transactions that are left.

        A version that stands alone is left out: another one had its number before, and later versions go back to that
        one. Its maker does not know whether it landed, or what it did is there all the same.
        """
        makers: dict[int, set[int]] = {}
        for number, (action, outcome) in enumerate(zip(self.actions, outcomes, strict=True)):
            if action.effect is not None and outcome.error is None:
                makers.setdefault(outcome.result, set()).add(number)
        if max(makers, default=0) > versions[-1]:
            raise AssertionError(f"{makers} were acknowledged, there are {versions}")
        state = _appended(_FIRST, 4)
        states = {1: _FIRST, 2: state}
        for version in range(3, versions[-1] + 1):
            claims = makers.get(version, set[int]())
            if version in versions and not claims and self._only_reserves(store, version):
                states[version] = state
                continue
            if version in versions:
                maker = self._maker(store, version)
                claims = claims or self._version_steps(outcomes, maker, version)
                claims = claims or {state for state in self._unsure(outcomes) if self._program(state) == maker}
                is_alone = maker in map(self._program, self._unsure(outcomes)) and version < versions[-1]
                if is_alone and claims - self._unsure(outcomes):
                    state = self._after(state, claims)
                    continue
                if maker not in map(self._program, claims):
                    raise AssertionError(f"version {version} was made by {maker}, acknowledged to {claims}")
            elif not claims and len(self._unsure(outcomes)) == 1:
                claims = self._unsure(outcomes)
            if not claims and not self._may_have_reserved(version in versions):
                raise AssertionError(f"version {version} was made by nobody")
            state = self._after(state, claims)
            if len(claims) == 1 or version not in versions or version == versions[-1]:
                states[version] = state
        return states

    def _after(self, state: State, numbers: Iterable[int]) -> State:
        for number in numbers:
            effect = self.actions[number].effect
            state = state if effect is None else effect(state, number)
        return state

    def _program(self, number: int) -> int:
        return number if self.programs is None else self.programs[number]

    def _version_steps(self, outcomes: Sequence[Outcome], maker: int, version: int) -> set[int]:
        """Return the actions of a program that made this version on the way to the one that they acknowledged."""
        return {
            number
            for number, (action, outcome) in enumerate(zip(self.actions, outcomes, strict=True))
            if action.makes_several
            and self._program(number) == maker
            and outcome.error is None
            and (outcome.result or 0) > version
        }

    @staticmethod
    def _unsure(outcomes: Sequence[Outcome]) -> set[int]:
        """Return the actions that do not know whether they happened."""
        return {n for n, outcome in enumerate(outcomes) if isinstance(outcome.error, CommitOutcomeUnknownError)}

    def _may_have_reserved(self, is_there: bool) -> bool:
        """Return whether a version that a clean-up took may have reserved fragment ids."""
        return not is_there and any(action.makes_several for action in self.actions)

    @staticmethod
    def _only_reserves(store: MemoryStore, version: int) -> bool:
        """Return whether a version reserves fragment ids, for work that may fail later, and changes nothing."""
        transaction = read_transaction(store, version)
        return transaction is not None and isinstance(transaction.operation, ReserveFragments)

    @staticmethod
    def _maker(store: MemoryStore, version: int) -> int:
        transaction = read_transaction(store, version)
        number = None if transaction is None else program_of(transaction.uuid)
        if number is None:
            raise AssertionError(f"no program made version {version}")
        return number

    @staticmethod
    def _check_leftovers(store: MemoryStore, versions: Sequence[int]) -> None:
        """Whoever lost for certain has taken its files away."""
        needed = References()
        for version in versions:
            needed.add(manifest_files(open_snapshot(store, version).manifest))
        folders = ("data", "_deletions", "_transactions", "_indices")
        paths = [info.path for folder in folders for info in store.list(folder) if info.path not in needed]
        if paths:
            raise AssertionError(f"nobody needs {paths}")


@frozen(kw_only=True)
class Action:
    """One change.

    Attributes:
        run: Carries it out; returns the version it made.
        effect: What it makes of a state; None if it makes no version.
        is_clean_up: It deletes what others made.
        makes_several: It may commit a part of its work, which has the same effect, before the rest.
    """

    run: Callable[[Store, int], int | None]
    effect: Callable[[State, int], State] | None = None
    is_clean_up: bool = False
    makes_several: bool = False

    def program(self, number: int) -> Program:
        """Return the action, carried out by the program of a number."""
        return Program(work=lambda store: self.run(store, number), sees_all=self.is_clean_up)


def rows_of(keys: list[int], value: int) -> pa.Table:
    """Return rows with these keys; the column x is missing."""
    return pa.table({"k": pa.array(keys, pa.int64()), "v": pa.array([value] * len(keys), pa.int64())})


def prepared(*, stable_row_ids: bool = True) -> MemoryStore:
    """Return the table: version 1 has keys 0 to 3, version 2 one more."""
    store = MemoryStore(now=lambda: EPOCH)
    table = rows_of([0, 1, 2, 3], 0).append_column("x", pa.array(range(4), pa.int64()))
    fragments, schema = stage_data(store, table, None, table=None, limits=_LIMITS, data_storage_version="2.2")
    first = Overwrite(fragments=fragments, schema=schema)
    commit(store, _transaction(0, first), enable_stable_row_ids=stable_row_ids, runtime=_THEN)
    _append(store, 4, _THEN)
    return store


def in_turn(actions: Mapping[int, Action]) -> Program:
    """A program that carries out several actions, each with a number of its own; its result is their outcomes."""

    def attempt(store: Store, number: int, action: Action) -> Outcome:
        try:
            return Outcome(result=action.run(store, number))
        except LanceError as error:
            return Outcome(error=error)

    return Program(
        work=lambda store: {number: attempt(store, number, action) for number, action in actions.items()},
        sees_all=any(action.is_clean_up for action in actions.values()),
    )


# ------------------------------------------------------------------------------------------------------------- actions


def _open(store: Store) -> LanceDataset:
    return LanceDataset("memory", snapshot=open_snapshot(store))


def _transaction(read_version: int, operation: Operation) -> Any:
    return new_transaction(read_version, operation, properties=_properties(), message=None)


def _properties() -> dict[str, str]:
    return with_key(None, _KEY.get())


def run_once(action: Action, store: Store, number: int, key: str) -> int | None:
    """Carry out an action whose commit carries a key, unless there is one already: what a caller does who tries again.

    Returns:
        The version made, now or then.
    """
    done = find_commit(store, key)
    if done is not None:
        return done
    token = _KEY.set(key)
    try:
        return action.run(store, number)
    finally:
        _KEY.reset(token)


def _write(store: Store, key: int, *, overwrites: bool, runtime: Runtime = SYSTEM_RUNTIME) -> int:
    read = open_snapshot(store)
    table = None if overwrites else read.manifest.schema
    staged, schema = stage_data(store, rows_of([key], 0), None, table=table, limits=_LIMITS, data_storage_version="2.2")
    operation = Overwrite(fragments=staged, schema=schema) if overwrites else Append(fragments=staged)
    with removing_staged(store, staged):
        transaction = _transaction(read.version, operation)
        return commit(store, transaction, read=read, has_new_uuid=True, runtime=runtime).version


def _append(store: Store, key: int, runtime: Runtime = SYSTEM_RUNTIME) -> int:
    return _write(store, key, overwrites=False, runtime=runtime)


def _appended(state: State, key: int) -> State:
    return replace(state, rows={**state.rows, key: {"k": key, "v": 0}})


def _overwritten(state: State, key: int) -> State:
    return State(columns=("k", "v"), rows={key: {"k": key, "v": 0}}, config=state.config)


def _change(work: Callable[[LanceDataset, int], Any]) -> Callable[[Store, int], int]:
    def run(store: Store, number: int) -> int:
        dataset = _open(store)
        work(dataset, number)
        return dataset.version

    return run


def _matching(state: State, condition: Callable[[int], bool]) -> State:
    return replace(state, rows={key: row for key, row in state.rows.items() if condition(key)})


def _updated(state: State, number: int) -> State:
    rows = {key: {**row, "v": row["v"] + 1 + 10 * number} if key <= 1 else row for key, row in state.rows.items()}
    return replace(state, rows=rows)


def _merge(dataset: LanceDataset, number: int) -> None:
    builder = dataset.merge_insert("k").when_matched_update_all().when_not_matched_insert_all()
    builder.transaction_properties(_properties()).conflict_retries(_MANY_RETRIES).execute(
        rows_of([1, 60], 500 + number)
    )


def _merged(state: State, number: int) -> State:
    new = {key: {**state.rows.get(key, {"k": key}), "v": 500 + number} for key in (1, 60)}
    return replace(state, rows={**state.rows, **new})


def _replaced(state: State, number: int) -> State:
    return _appended(_matching(state, lambda key: key < 2), 70 + number)


def _with_w(state: State, number: int) -> State:
    rows = {key: {**row, "w": key * 2 + number} for key, row in state.rows.items()}
    return replace(state, columns=(*state.columns, "w"), rows=rows)


def _restore(store: Store, _number: int) -> int:
    dataset = LanceDataset("memory", snapshot=open_snapshot(store, 1))
    dataset.restore()
    return dataset.version


def _cleanup(store: Store, _number: int) -> None:
    later = Runtime(now=lambda: _LATER)
    cleanup_old_versions(store, older_than=timedelta(0), error_if_tagged_old_versions=False, runtime=later)


def _no_version(work: Callable[[LanceDataset, int], Any]) -> Callable[[Store, int], None]:
    def run(store: Store, number: int) -> None:
        work(_open(store), number)

    return run


def _move_tag(dataset: LanceDataset, _number: int) -> None:
    dataset.tags.create("moved", dataset.version)
    dataset.tags.update("moved", 1)
    dataset.tags.replace_metadata("moved", {"why": "it is good"})


def _drop_branch(dataset: LanceDataset, _number: int) -> None:
    dataset.create_branch("b")
    dataset.branches.delete("b")


_FIRST = State(columns=("k", "v", "x"), rows={key: {"k": key, "v": 0, "x": key} for key in range(4)})

ACTIONS: dict[str, Action] = {
    "append": Action(
        run=lambda store, number: _append(store, 100 + number),
        effect=lambda state, number: _appended(state, 100 + number),
    ),
    "overwrite": Action(
        run=lambda store, number: _write(store, 50 + number, overwrites=True),
        effect=lambda state, number: _overwritten(state, 50 + number),
    ),
    "delete": Action(
        run=_change(lambda dataset, number: dataset.delete(f"k = {number}", transaction_properties=_properties())),
        effect=lambda state, number: _matching(state, lambda key: key != number),
    ),
    "delete the same": Action(
        run=_change(lambda dataset, _: dataset.delete("k >= 1 AND k <= 3", transaction_properties=_properties())),
        effect=lambda state, _: _matching(state, lambda key: not 1 <= key <= 3),
    ),
    "update": Action(
        run=_change(
            lambda dataset, number: dataset.update(
                {"v": f"v + {1 + 10 * number}"},
                where="k <= 1",
                conflict_retries=_MANY_RETRIES,
                transaction_properties=_properties(),
            )
        ),
        effect=_updated,
    ),
    "merge": Action(run=_change(_merge), effect=_merged),
    "replace where": Action(
        run=_change(
            lambda dataset, number: dataset.replace_where(
                "k >= 2", rows_of([70 + number], 0), transaction_properties=_properties()
            )
        ),
        effect=_replaced,
    ),
    "compaction": Action(
        run=_change(lambda dataset, _: dataset.optimize.compact_files(num_threads=1)),
        effect=lambda state, _: state,
        makes_several=True,
    ),
    "add column": Action(
        run=_change(lambda dataset, number: dataset.add_columns({"w": f"k * 2 + {number}"})), effect=_with_w
    ),
    "drop column": Action(
        run=_change(lambda dataset, _: dataset.drop_columns(["x"])),
        effect=lambda state, _: replace(state, columns=tuple(column for column in state.columns if column != "x")),
    ),
    "restore": Action(run=_restore, effect=lambda *_: _FIRST),
    "config": Action(
        run=_change(lambda dataset, number: dataset.update_config({"key": str(number)})),
        effect=lambda state, number: replace(state, config={**state.config, "key": str(number)}),
    ),
    "tag": Action(run=_no_version(lambda dataset, _: dataset.tags.create("t", 1))),
    "branch": Action(run=_no_version(lambda dataset, _: dataset.create_branch("b"))),
    "clean-up": Action(run=_cleanup, is_clean_up=True),
    "zone map": Action(
        run=_change(
            lambda dataset, _: dataset.create_scalar_index("k", "ZONEMAP", transaction_properties=_properties())
        ),
        effect=lambda state, _: state,
    ),
    "b-tree": Action(
        run=_change(lambda dataset, _: dataset.create_scalar_index("k", "BTREE", transaction_properties=_properties())),
        effect=lambda state, _: state,
    ),
    "moved tag": Action(run=_no_version(_move_tag)),
    "dropped branch": Action(run=_no_version(_drop_branch)),
}
