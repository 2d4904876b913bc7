"""Every error that lance_core raises on purpose.

Each error has a stable ``kind`` (for programs), a message (for people) that says what to do, and, where
known, the ``path`` and byte ``offset`` it is about. All of them survive pickling, because they cross process
borders in Spark and Dagster.
"""

from __future__ import annotations

from typing import ClassVar


class LanceError(Exception):
    """Base of all deliberate errors.

    Args:
        message: What happened and what to do about it.
        path: File or dataset the error is about.
        offset: Byte position in that file.
    """

    kind: ClassVar[str] = "error"
    advice: ClassVar[str] = ""
    """What to do, if that is the same for every error of the class; shown behind the message."""

    def __init__(self, message: str, *, path: str | None = None, offset: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.path = path
        self.offset = offset

    def __str__(self) -> str:
        """Return the message, followed by advice and where it happened."""
        text = f"{self.message}; {self.advice}" if self.advice else self.message
        where = [] if self.path is None else [self.path]
        if self.offset is not None:
            where.append(f"byte {self.offset}")
        return f"{text} [{', '.join(where)}]" if where else text

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by attributes, so that keyword-only arguments survive."""
        return (_rebuild, (type(self), self.args, self.__dict__.copy()))


def _rebuild(cls: type[LanceError], args: tuple[object, ...], state: dict[str, object]) -> LanceError:
    # Python takes the first built-in base of a class, but only the constructor of an OSError makes one.
    error = OSError.__new__(cls) if issubclass(cls, OSError) else cls.__new__(cls)
    error.args = args
    error.__dict__.update(state)
    return error


class IndexCoverageWarning(UserWarning):
    """Rows that an index covered before an operation and does not cover after it."""


class CorruptDataError(LanceError):
    """Bytes that no correct writer can have made."""

    kind = "corrupt_data"
    advice = "restore the file from a copy, or open another version of the table"


class UnsupportedError(LanceError, NotImplementedError):
    """A valid request or file that this version of lance_core cannot serve; the message names the feature."""

    kind = "unsupported"


class RefusedModuleError(UnsupportedError, ImportError):
    """A module of pylance that lance_core does not have; the message says why."""


class InvalidInputError(LanceError, ValueError):
    """A wrong argument, a type mismatch, an unknown column."""

    kind = "invalid_input"


class UntrustedPlaceError(InvalidInputError):
    """A table names a place that nobody allowed it to name; the message says how to allow it."""

    kind = "untrusted_place"


class SchemaMismatchError(InvalidInputError, OSError):
    """Data that does not fit the schema of the table; pylance raises an OSError for it."""


class NotFoundError(LanceError, FileNotFoundError):
    """Something that was asked for by name does not exist."""

    kind = "not_found"


class DatasetNotFoundError(NotFoundError, ValueError):
    """There is no dataset at this place; pylance raises a ValueError."""

    kind = "dataset_not_found"


class VersionNotFoundError(NotFoundError, ValueError):
    """The dataset has no such version (it may have been cleaned up); pylance raises a ValueError."""

    kind = "version_not_found"


class RefNotFoundError(NotFoundError, ValueError):
    """The dataset has no such tag or branch; pylance raises a ValueError."""

    kind = "ref_not_found"


class AlreadyExistsError(LanceError, FileExistsError):
    """Something that should be created is there already."""

    kind = "already_exists"


class DatasetAlreadyExistsError(AlreadyExistsError):
    """There is a dataset at this place already."""

    kind = "dataset_already_exists"


class RefAlreadyExistsError(AlreadyExistsError, ValueError):
    """There is a tag or branch of this name already; pylance raises a ValueError."""

    kind = "ref_already_exists"


class CommitConflictError(LanceError, OSError):
    """Another commit changed what this one relies on.

    Read the new version and do the work again. An OSError, as in pylance.

    Args:
        message: What happened.
        ours: Name of the operation that could not be committed.
        theirs: Name of the committed operation it conflicts with.
        version: Version that holds the other operation.
        is_retryable: True if the same work can succeed on the newest version.
        path: Dataset.
    """

    kind = "commit_conflict"

    def __init__(
        self,
        message: str,
        *,
        ours: str = "",
        theirs: str = "",
        version: int | None = None,
        is_retryable: bool = True,
        path: str | None = None,
    ) -> None:
        super().__init__(message, path=path)
        self.ours = ours
        self.theirs = theirs
        self.version = version
        self.is_retryable = is_retryable

    @property
    def retryable(self) -> bool:
        """The same as ``is_retryable``; the name in pylance."""
        return self.is_retryable


class CommitContentionError(LanceError):
    """The commit could have been merged, but too many other commits came first; try again later."""

    kind = "commit_contention"


class CommitOutcomeUnknownError(LanceError):
    """The store failed in a way that leaves open whether the commit landed; nothing was deleted."""

    kind = "commit_outcome_unknown"


class StoreTimeoutError(LanceError, TimeoutError):
    """A store did not answer in time; the message names the setting, ``path`` the object."""

    kind = "store_timeout"


class SparkTaskError(LanceError):
    """A task of a Spark job failed for a reason that is none of ours, for example in a function of the user."""

    kind = "spark_task"


class UnsafeStoreError(LanceError):
    """The store cannot create a file atomically, so that two writers could both believe to have won."""

    kind = "unsafe_store"
