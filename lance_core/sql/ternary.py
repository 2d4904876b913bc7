"""Possible answers of a condition in SQL's three-valued logic, as codes.

A code is the set of the answers that a condition may give for a row: any sum of `TRUE`, `FALSE` and `NULL`. A code with
one bit is a certain answer, `ANY` means that nothing is known. A code of 0 belongs to rows that do not exist. Each
function combines every answer of one side with every answer of the other, so that sound codes stay sound.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Codes: TypeAlias = npt.NDArray[np.uint8]

TRUE, FALSE, NULL = 1, 2, 4
ANY = TRUE | FALSE | NULL
_COUNT = ANY + 1


def _conjunctions() -> Codes:
    """Return the codes of ``AND`` for each pair of codes, shape (8, 8)."""
    left, right = np.indices((_COUNT, _COUNT), np.uint8)
    both_true = left & right & TRUE
    false = (left & FALSE) * (right > 0) | (right & FALSE) * (left > 0)
    null = (left & NULL) * ((right & (TRUE | NULL)) > 0) | (right & NULL) * ((left & (TRUE | NULL)) > 0)
    return (both_true | false | null).astype(np.uint8)


_CODES = np.arange(_COUNT, dtype=np.uint8)
_NOT: Codes = ((_CODES & NULL) | (_CODES & TRUE) << 1 | (_CODES & FALSE) >> 1).astype(np.uint8)
_AND = _conjunctions()
_OR: Codes = _NOT[_AND[_NOT][:, _NOT]]
_FILLED: dict[bool, Codes] = {
    value: ((_CODES & (TRUE | FALSE)) | np.where(_CODES & NULL, TRUE if value else FALSE, 0)).astype(np.uint8)
    for value in (True, False)
}


def not_(codes: Codes) -> Codes:
    """Return the codes of ``NOT``; null stays null."""
    return _NOT.take(codes)


def and_(left: Codes, right: Codes) -> Codes:
    """Return the codes of Kleene's ``AND``."""
    return _AND.take(left * _COUNT + right)


def or_(left: Codes, right: Codes) -> Codes:
    """Return the codes of Kleene's ``OR``."""
    return _OR.take(left * _COUNT + right)


def fill_null(codes: Codes, *, value: bool) -> Codes:
    """Return the codes of the same answers with ``value`` in place of null."""
    return _FILLED[value].take(codes)


def code_of(value: bool | None) -> int:
    """Return the code of a certain answer."""
    return NULL if value is None else TRUE if value else FALSE
