"""Limits on the resources that a file may ask for; files beyond them are refused before memory is allocated.

Each limit has a name, which is also that of an environment variable: ``max_fields`` is ``LANCE_CORE_MAX_FIELDS``.
"""

from __future__ import annotations

import os
from dataclasses import fields
from functools import cache

from lance_core.common.frozen import frozen
from lance_core.errors import InvalidInputError, UnsupportedError

_PREFIX = "LANCE_CORE_"


@frozen(kw_only=True)
class Limits:
    """Limits of this process; the environment is asked once.

    Attributes:
        max_manifest_bytes: Bytes of a manifest file.
        max_transaction_bytes: Bytes of a transaction.
        max_deletion_bytes: Bytes of a deletion file.
        max_ref_bytes: Bytes of the file of a tag or branch.
        max_checksum_bytes: Bytes of the checksums of a data file, or of its blob files.
        max_metadata_bytes: Bytes of a manifest without its fragments, of a file descriptor, and of the metadata of one
            column of a data file. Decoded they take up to thirty times as much.
        max_fragments: Fragments of a version.
        max_fields: Fields of a schema.
        max_base_paths: Base paths of a table.
        max_pages: Pages of one column of a data file.
        max_zones: Zones or keys of one segment of an index.
        max_decompressed_bytes: Bytes that are made of compressed ones at once.
    """

    max_manifest_bytes: int = 512 << 20
    max_transaction_bytes: int = 512 << 20
    max_deletion_bytes: int = 1 << 30
    max_ref_bytes: int = 1 << 20
    max_checksum_bytes: int = 256 << 20
    max_metadata_bytes: int = 8 << 20
    max_fragments: int = 5_000_000
    max_fields: int = 500_000
    max_base_paths: int = 10_000
    max_pages: int = 1_000_000
    max_zones: int = 20_000_000
    max_decompressed_bytes: int = 16 << 30


@cache
def limits() -> Limits:
    """Return the limits from the environment, else the defaults.

    Raises:
        InvalidInputError: It says something that is no number.
    """
    limits_given: dict[str, int] = {}
    for limit in fields(Limits):
        name = _PREFIX + limit.name.upper()
        text = os.environ.get(name)
        if text is None:
            continue
        if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text)):
            raise InvalidInputError(f"environment variable {name} must be a number above 0, not {text!r}")
        limits_given[limit.name] = int(text)
    return Limits(**limits_given)


def check_limit(name: str, value: int, what: str, *, path: str | None = None) -> None:
    """Refuse what goes beyond a limit.

    Args:
        name: Of the limit.
        value: What the file asks for.
        what: Of what, for people.
        path: The file.

    Raises:
        UnsupportedError: It is more; the message says how to allow it.
    """
    limit: int = getattr(limits(), name)
    if value > limit:
        raise UnsupportedError(
            f"the file asks for {value:,} {what}, more than the limit of {limit:,}. If you trust the file, "
            f"raise the environment variable {_PREFIX}{name.upper()}",
            path=path,
        )
