"""A command, its arguments, and the answer it gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from lance_core.common.frozen import frozen

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterable, Mapping, Sequence

DONE = 0
FOUND_PROBLEMS = 1
FAILED = 2
INTERRUPTED = 130


@frozen(kw_only=True)
class Answer:
    """Result of a command.

    Attributes:
        lines: Text for people.
        document: The same for programs, to be printed as JSON. An iterator is printed as JSON Lines, one item a line.
        exit_code: ``DONE`` or ``FOUND_PROBLEMS``.
    """

    lines: Iterable[str]
    document: Any
    exit_code: int = DONE


class Run(Protocol):
    """Runs a command."""

    def __call__(self, arguments: Namespace, /) -> Answer:
        """Return the answer; errors are raised."""
        ...


@frozen
class Argument:
    """A word or an option of a command.

    Attributes:
        name: ``table`` for a word, ``--limit`` for an option.
        help: What it means.
        settings: More arguments of `argparse.ArgumentParser.add_argument`.
    """

    name: str
    help: str
    settings: Mapping[str, Any]


@frozen(kw_only=True)
class Command:
    """A command.

    Attributes:
        name: The word that chooses it.
        summary: What it does, in a sentence without a full stop.
        run: Runs it.
        arguments: Its words and options, besides those that all commands have.
    """

    name: str
    summary: str
    run: Run
    arguments: tuple[Argument, ...] = ()


def argument(
    name: str,
    help: str,  # noqa: A002 the name in argparse
    *,
    action: str | None = None,
    choices: Sequence[str] | None = None,
    default: Any = None,
    metavar: str | None = None,
    nargs: str | None = None,
    type: Callable[[str], Any] | None = None,  # noqa: A002 the name in argparse
) -> Argument:
    """Return an argument; all but ``name`` as in `argparse.ArgumentParser.add_argument`."""
    given = {
        "action": action,
        "choices": choices,
        "default": default,
        "metavar": metavar,
        "nargs": nargs,
        "type": type,
    }
    return Argument(name, help, {key: value for key, value in given.items() if value is not None})
