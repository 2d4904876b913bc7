"""Report of a verification, as values and as text."""

from __future__ import annotations

from dataclasses import dataclass, field

from lance_core.common.frozen import frozen

MAX_PROBLEMS = 1000
"""Problems that a report holds; more are only counted."""


@frozen(kw_only=True)
class VerifyProblem:
    """Something that is wrong with a table.

    Attributes:
        kind: For programs: ``manifest``, ``transaction``, ``schema``, ``fragment``, ``data_file``, ``deletion_file``,
            ``checksum``, ``row_ids``, ``values``, ``index``, ``ref`` or ``store``.
        message: For people.
        version: Version of the table that it was found in; None if it is about none.
        fragment_id: Fragment that it is about; None if it is about none.
        path: File that it is about, relative to the table; None if it is about none.
        index_name: Index that it is about; None if it is about none, or its manifest entry is wrong.
    """

    kind: str
    message: str
    version: int | None = None
    fragment_id: int | None = None
    path: str | None = None
    index_name: str | None = None

    def __str__(self) -> str:
        """One line."""
        parts = [
            f"version {self.version}" if self.version is not None else "",
            f"fragment {self.fragment_id}" if self.fragment_id is not None else "",
            self.path or "",
        ]
        where = ", ".join(part for part in parts if part)
        index = "" if self.index_name is None else f"index {self.index_name!r}: "
        return f"{self.kind}: {index}{self.message}" + (f" [{where}]" if where else "")


@dataclass(slots=True, kw_only=True)
class VerifyReport:
    """Result of a look at a whole table.

    Attributes:
        uri: The table.
        level: How closely it was looked at.
        version: Newest version; None if there is none that can be opened.
        num_versions: Versions looked at.
        num_fragments: Fragments of the newest version.
        num_rows: Rows of the newest version.
        num_files: Files that the versions need.
        num_bytes_read: Bytes of Arrow data decoded; 0 unless everything is read.
        num_checked_files: Data and blob files of the newest version that match their checksums; 0 unless everything
            is read.
        num_orphans: Files that belong to no version; clean-up removes them when they are old enough.
        orphan_bytes: Bytes in these.
        num_problems: How many problems there are, also those that ``problems`` has no room for.
        problems: The first of them.
    """

    uri: str
    level: str
    version: int | None = None
    num_versions: int = 0
    num_fragments: int = 0
    num_rows: int = 0
    num_files: int = 0
    num_bytes_read: int = 0
    num_checked_files: int = 0
    num_orphans: int = 0
    orphan_bytes: int = 0
    num_problems: int = 0
    problems: list[VerifyProblem] = field(default_factory=list[VerifyProblem])

    @property
    def is_ok(self) -> bool:
        """Return whether nothing is wrong."""
        return not self.num_problems

    def add(self, problem: VerifyProblem, *, max_problems: int = MAX_PROBLEMS) -> None:
        """Note a problem; it is only counted if there are so many already."""
        self.num_problems += 1
        if len(self.problems) < max_problems:
            self.problems.append(problem)

    def __str__(self) -> str:
        """Return the report in words."""
        verdict = "nothing is wrong" if self.is_ok else f"{self.num_problems:,} problems"
        version = "no version" if self.version is None else f"version {self.version}"
        checked = f"{self.num_checked_files:,} files match their checksums"
        how = {
            "full": f"all values were read, {checked}",
            "indices": "indices were compared with the columns",
        }.get(self.level, "values were not read; level full reads them")
        lines = [
            f"{self.uri}: {verdict}",
            f"  {version}: {self.num_fragments:,} fragments, {self.num_rows:,} rows",
            f"  looked at {self.num_versions:,} versions and the {self.num_files:,} files they need; {how}",
            f"  {self.num_orphans:,} files ({self.orphan_bytes:,} bytes) belong to no version",
            *(f"  - {problem}" for problem in self.problems),
        ]
        if self.num_problems > len(self.problems):
            lines.append(f"  - and {self.num_problems - len(self.problems):,} more")
        return "\n".join(lines)
