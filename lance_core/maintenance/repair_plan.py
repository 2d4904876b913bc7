"""Plan of a repair: its steps, what each of them loses, and the problems that nothing can be done about."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from lance_core.common.frozen import frozen

if TYPE_CHECKING:
    from lance_core.format.table.fragment import Fragment
    from lance_core.maintenance.salvage import Salvage
    from lance_core.maintenance.verify_report import VerifyProblem

StepKind: TypeAlias = Literal["manifest", "commit", "fragment", "tag", "branch", "index", "orphans"]


@frozen(kw_only=True)
class RepairStep:
    """One thing that a repair does.

    Attributes:
        kind: What is repaired.
        target: Name of it, such as ``version 7``, ``fragment 3``, or the name of an index.
        problem: What is wrong with it.
        action: What is done.
        outcome: The same in one word, such as ``removed`` or ``rebuilt``.
        loss: What is lost, in words; empty if nothing is.
        rows_lost: Number of live rows that are lost, as far as it is known.
        values_lost: Number of values that become null.
        rows_returned: Number of deleted rows that come back.
        path: File that is removed or committed, relative to the table.
        updated: The fragment as it becomes; None if it goes, or if the step is about none.
        fragment_id: Fragment that the step is about.
        salvages: Damaged files of the fragment that are written anew, with the rows that can be read.
    """

    kind: StepKind
    target: str
    problem: str
    action: str
    outcome: str
    loss: str = ""
    rows_lost: int = 0
    values_lost: int = 0
    rows_returned: int = 0
    path: str | None = None
    updated: Fragment | None = None
    fragment_id: int | None = None
    salvages: tuple[Salvage, ...] = ()

    def __str__(self) -> str:
        """One line."""
        loss = f"; {self.loss}" if self.loss else ""
        return f"{self.target}: {self.problem} -> {self.action}{loss}"


@frozen(kw_only=True)
class RepairPlan:
    """The steps that `lance_core.repair` would take.

    Attributes:
        uri: The table.
        version: The newest version that can be read, from which the repair starts; None if there is none.
        steps: What is done, in this order.
        unrepaired: Problems that are left as they are.
    """

    uri: str
    version: int | None
    steps: tuple[RepairStep, ...]
    unrepaired: tuple[VerifyProblem, ...]

    @property
    def rows_lost(self) -> int:
        """Number of live rows that are lost, as far as it is known."""
        return sum(step.rows_lost for step in self.steps)

    @property
    def rows_returned(self) -> int:
        """Number of deleted rows that come back."""
        return sum(step.rows_returned for step in self.steps)

    @property
    def is_lossless(self) -> bool:
        """Return whether no step loses anything."""
        return not any(step.loss for step in self.steps)

    def asdict(self) -> dict[str, Any]:
        """Return the plan in JSON's types."""
        names = [field.name for field in fields(RepairStep) if field.name not in {"updated", "salvages"}]
        return {
            "uri": self.uri,
            "version": self.version,
            "is_lossless": self.is_lossless,
            "rows_lost": self.rows_lost,
            "rows_returned": self.rows_returned,
            "steps": [{name: getattr(step, name) for name in names} for step in self.steps],
            "unrepaired": [asdict(problem) for problem in self.unrepaired],
        }

    def __str__(self) -> str:
        """Return the plan in words."""
        version = "no version can be read" if self.version is None else f"from version {self.version}"
        lines = [f"{self.uri}: {len(self.steps):,} steps, {version}", *(f"  - {step}" for step in self.steps)]
        if not self.is_lossless:
            lines.append(f"  loses {self.rows_lost:,} rows, brings {self.rows_returned:,} deleted rows back")
        lines += [f"  not repaired: {problem}" for problem in self.unrepaired]
        return "\n".join(lines)
