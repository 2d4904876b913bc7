# Assertions are what this is for; pytest explains them.
# ruff: noqa: S101
"""A branch held against what each of them must hold, as two libraries see it.

The libraries are modules with the functions and classes that pylance and lance_core share; the first is lance_core.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from lance_core.testing.model import KEY

if TYPE_CHECKING:
    import pyarrow as pa

    from lance_core.testing.model import TableState

LINEAGE = ["_row_created_at_version", "_row_last_updated_at_version"]


def by_key(table: pa.Table) -> pa.Table:
    """Return the same rows, by key."""
    return table.sort_by(KEY)


def plain(schema: pa.Schema) -> list[tuple[str, pa.DataType, bool]]:
    """Return a schema without the metadata of pylance's own types."""
    return [(field.name, field.type, field.nullable) for field in schema]


@dataclass(slots=True, kw_only=True)
class BranchModel:
    """A branch.

    Attributes:
        root: Address of the table.
        branch: Branch; None for the main branch.
        states: What each version must hold, by number.
        tools: lance_core and another library.
        has_stable_row_ids: Whether row ids stay, and rows tell their versions.
        keeps_open: One object of each library lives as long as the branch: what it keeps in memory must stay right.
        children: Branches that come from it, and the versions they come from.
        opened: The objects that are kept open.
    """

    root: str
    branch: str | None
    states: dict[int, TableState]
    tools: tuple[Any, Any]
    has_stable_row_ids: bool
    keeps_open: bool = False
    children: dict[str, int] = field(default_factory=dict[str, int])
    opened: dict[Any, Any] = field(default_factory=dict[Any, Any])

    @property
    def version(self) -> int:
        """The newest version."""
        return max(self.states)

    @property
    def state(self) -> TableState:
        """Expected content of the newest version."""
        return self.states[self.version]

    def begun(self, root: str, branch: str | None, version: int) -> BranchModel:
        """Return a line that comes from a version of this one."""
        return replace(self, root=root, branch=branch, states={version: self.states[version]}, children={}, opened={})

    def open(self, tool: Any, version: int | None = None) -> Any:
        """A dataset of a library; at the newest version by default, and then perhaps one that was open before."""
        if version is None and self.keeps_open:
            if tool not in self.opened:
                self.opened[tool] = self._opened_anew(tool, None)
            self.opened[tool].checkout_latest()
            return self.opened[tool]
        return self._opened_anew(tool, version)

    def _opened_anew(self, tool: Any, version: int | None) -> Any:
        if self.branch is None:
            return tool.dataset(self.root, version=version)
        return tool.dataset(self.root).checkout_version((self.branch, version))

    def check(self) -> None:
        """The newest version, row by row."""
        ours, theirs = (self.open(tool) for tool in self.tools)
        state = self.state
        columns = [*state.schema.names, "_rowid", "_rowaddr", *(LINEAGE if self.has_stable_row_ids else [])]
        read = ours.to_table(columns=columns)
        assert read.equals(theirs.to_table(columns=columns))
        assert plain(ours.schema) == plain(theirs.schema) == plain(state.schema)
        assert (ours.schema.metadata or {}) == (theirs.schema.metadata or {}) == (state.schema.metadata or {})
        assert by_key(read.select(state.schema.names)).to_pylist() == state.table().to_pylist()
        assert ours.count_rows() == theirs.count_rows() == len(state.rows)
        assert ours.config() == theirs.config() == dict(state.config)
        assert ours.metadata == theirs.metadata == dict(state.metadata)
        self._check_rows(read)
        theirs.validate()
        report = ours.verify()
        assert report.is_ok, str(report)

    def _check_rows(self, read: pa.Table) -> None:
        """Row ids and lineage."""
        state = self.state
        used: frozenset[int] = frozenset[int]().union(*(state.used_ids for state in self.states.values()))
        ids: dict[int, int] = dict(zip(read[KEY].to_pylist(), read["_rowid"].to_pylist(), strict=True))
        assert len(set(ids.values())) == len(ids)
        if not self.has_stable_row_ids:
            return
        shared = {key: row_id for key, row_id in state.ids.items() if key in ids}
        assert {key: ids[key] for key in shared} == shared, "row ids stay"
        fresh = {row_id for key, row_id in ids.items() if key not in shared}
        assert not fresh & used, "no row id is given twice"
        lineage = zip(*(read[name].to_pylist() for name in (KEY, *LINEAGE)), strict=True)
        assert {key: (created, updated) for key, created, updated in lineage} == {
            key: (row.created, row.updated) for key, row in state.rows.items()
        }
        for version in [version for version, other in self.states.items() if other is state]:
            self.states[version] = replace(state, ids=ids, used_ids=used | fresh)

    def check_all(self) -> None:
        """Every version that is kept, and every byte of the newest."""
        for tool in self.tools:
            assert [version["version"] for version in self.open(tool).versions()] == sorted(self.states)
        for version, state in self.states.items():
            for tool in self.tools:
                dataset = self.open(tool, version)
                assert by_key(dataset.to_table()).to_pylist() == state.table().to_pylist(), (version, tool.__name__)
        report = self.open(self.tools[0]).verify(level="full")
        assert report.is_ok, str(report)

    def check_changes(self, *, since: int) -> None:
        """Check the changes since a version that the libraries report."""
        if since == self.version:
            return
        rows = self.state.rows
        inserted = {key for key, row in rows.items() if row.created > since}
        updated = {key for key, row in rows.items() if row.created <= since < row.updated}
        deleted = {*self.states[since].ids.values()} - {*self.state.ids.values()}
        for tool in self.tools:
            delta = self.open(tool).delta(since)
            assert set(delta.get_inserted_rows().read_all()[KEY].to_pylist()) == inserted
            assert set(delta.get_updated_rows().read_all()[KEY].to_pylist()) == updated
            assert set(delta.get_deleted_row_ids().read_all()["_rowid"].to_pylist()) == deleted
