"""A store that fails on demand, and one whose process ends."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from lance_core.store.base import ObjectInfo, ObjectReader, ObjectWriter, Store

_T = TypeVar("_T")


Effect = Literal["before", "after", "partial", "late"]
"""When a call fails: before anything happens; after all has; half-way, as with a full disk; or it is given up on, and
happens all the same while later calls are made."""


class InjectedError(OSError):
    """The failure that was ordered."""


class Killed(BaseException):
    """The process ends here: nobody catches it, and nothing is tidied up."""


@dataclass(slots=True, kw_only=True)
class FaultyStore:
    """Passes calls on to a store, and fails one of them.

    Calls are counted from 1; writing an object counts when it begins, at each write and when it is finished.

    Attributes:
        inner: The store that does the work.
        fail_at: Number of the call that fails; 0 for none.
        effect: When that call fails. Half of an object is left under a temporary name, as local files leave it.
        error: What it raises.
        calls: What was called so far: (method, path).
        on_call: Is told of each call before it happens; may call the store itself to stage a race.
    """

    inner: Store
    fail_at: int = 0
    effect: Effect = "before"
    error: Callable[[str], BaseException] = InjectedError
    calls: list[tuple[str, str]] = field(default_factory=list)
    on_call: Callable[[str, str], None] | None = None
    _late: Callable[[], object] | None = None
    _is_dead: bool = False

    @property
    def uri(self) -> str:
        """Address of the inner store."""
        return self.inner.uri

    def reader(self, path: str, /) -> ObjectReader:
        """Open an object."""
        return self.call("reader", path, lambda: self.inner.reader(path))

    def get(self, path: str, /) -> bytes:
        """Read a whole object."""
        return self.call("get", path, lambda: self.inner.get(path))

    def writer(self, path: str, /) -> ObjectWriter:
        """Begin an object."""
        return self.call("writer", path, lambda: _FaultyWriter(self, self.inner.writer(path), path))

    def put(self, path: str, data: bytes, /) -> None:
        """Write a whole object."""
        self.call("put", path, lambda: self.inner.put(path, data), half=lambda: self._leave_half(path, data))

    def put_if_absent(self, path: str, data: bytes, /) -> bool:
        """Create an object."""
        half = lambda: self._leave_half(path, data)  # noqa: E731 as for the other calls
        return self.call("put_if_absent", path, lambda: self.inner.put_if_absent(path, data), half=half)

    def names(self, folder: str, /) -> list[str]:
        """List names."""
        return self.call("names", folder, lambda: self.inner.names(folder))

    def list(self, prefix: str, /) -> Iterator[ObjectInfo]:
        """List objects."""
        return self.call("list", prefix, lambda: iter([*self.inner.list(prefix)]))

    def delete(self, paths: Sequence[str], /) -> None:
        """Delete objects; a failing call deletes the first of them only if it fails after its effect."""
        for path in paths:
            self.call("delete", path, lambda path=path: self.inner.delete([path]))

    def call(self, method: str, path: str, work: Callable[[], _T], *, half: Callable[[], object] = lambda: None) -> _T:
        """Count a call, and carry it out or fail; ``half`` is what is left if it fails half-way."""
        if self._is_dead:
            raise Killed
        self.calls.append((method, path))
        number = len(self.calls)
        if self.on_call is not None:
            self.on_call(method, path)
        if number != self.fail_at:
            if number > self.fail_at + 1:
                self.settle()
            return work()
        if self.effect == "late":
            self._late = work
        elif self.effect == "after":
            work()
        elif self.effect == "partial":
            half()
        error = self.error(f"{method} {path} failed: {self.effect}")
        self._is_dead = isinstance(error, Killed)
        raise error

    def settle(self) -> None:
        """Let what is late happen now; the store's own errors are nobody's business any more."""
        late, self._late = self._late, None
        if late is not None:
            with suppress(Exception):
                late()

    def _leave_half(self, path: str, data: bytes) -> None:
        self.inner.put(f"{path.rpartition('/')[0]}/.tmp_half_of_it", data[: len(data) // 2])


class _FaultyWriter:
    def __init__(self, store: FaultyStore, inner: ObjectWriter, path: str) -> None:
        self._store = store
        self._inner = inner
        self._path = path

    def write(self, data: bytes | memoryview | pa.Buffer) -> None:
        self._store.call("write", self._path, lambda: self._inner.write(data))

    def commit(self) -> int:
        return self._store.call("commit", self._path, self._inner.commit)

    def abort(self) -> None:
        self._inner.abort()
