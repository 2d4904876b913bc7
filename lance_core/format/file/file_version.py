"""Versions of data files: the word a user says, what the footer says, what the manifest says.

| word                    | footer (major, minor)    | DataFile (major, minor) |
|-------------------------|--------------------------|-------------------------|
| "0.1", "legacy"         | 0, 0..2                  | 0, 2                    |
| "2.0", "0.3"            | 0, 3 (also seen: 2, 0)   | 2, 0                    |
| "2.1"                   | 2, 1                     | 2, 1                    |
| "2.2", "stable", None   | 2, 2                     | 2, 2                    |
| "2.3", "next"           | 2, 3                     | 2, 3                    |
"""

from __future__ import annotations

from lance_core.common.frozen import frozen
from lance_core.errors import CorruptDataError, InvalidInputError, UnsupportedError

DEFAULT_VERSION = "2.2"
LEGACY_FILE_VERSION = "0.1"


@frozen
class FileVersion:
    """One version of the data file format.

    Attributes:
        name: What users write, for example "2.2".
        major: As in the manifest's DataFile.
        minor: As in the manifest's DataFile.
        is_writable: True if `lance_core` can write such files.
    """

    name: str
    major: int
    minor: int
    is_writable: bool

    @property
    def footer(self) -> tuple[int, int]:
        """Major and minor version that are written into footers."""
        return (0, 3) if self.name == "2.0" else (self.major, self.minor)


_VERSIONS = (
    FileVersion("0.1", 0, 2, is_writable=True),
    FileVersion("2.0", 2, 0, is_writable=True),
    FileVersion("2.1", 2, 1, is_writable=True),
    FileVersion("2.2", 2, 2, is_writable=True),
    FileVersion("2.3", 2, 3, is_writable=False),
)
_BY_NAME = {version.name: version for version in _VERSIONS}
_ALIASES = {"legacy": "0.1", "0.3": "2.0", "stable": DEFAULT_VERSION, "next": "2.3"}


def resolve_version(name: str | None) -> FileVersion:
    """Return the version a user asked for.

    Args:
        name: Version or alias; None means the default.

    Raises:
        InvalidInputError: No such version.
    """
    canonical = DEFAULT_VERSION if name is None else _ALIASES.get(name, name)
    if canonical not in _BY_NAME:
        names = ", ".join([*_BY_NAME, *_ALIASES])
        raise InvalidInputError(f"unknown data file version {name!r}; the versions are: {names}")
    return _BY_NAME[canonical]


def check_writable(version: FileVersion) -> None:
    """Raise UnsupportedError unless files of this version can be written."""
    if not version.is_writable:
        raise UnsupportedError(
            f"cannot write data files of version {version.name}. Use "
            f"data_storage_version={DEFAULT_VERSION!r}, for a table of version 0.1 with mode 'overwrite'"
        )


def decode_footer_version(major: int, minor: int) -> FileVersion:
    """Return the version a footer names.

    Raises:
        CorruptDataError: No version of the format has these numbers.
        UnsupportedError: The version is newer than all that are known.
    """
    if (major, minor) in ((0, 0), (0, 1), (0, 2)):
        version = _BY_NAME["0.1"]
    elif (major, minor) == (0, 3):
        version = _BY_NAME["2.0"]
    else:
        version = next((version for version in _VERSIONS[1:] if (version.major, version.minor) == (major, minor)), None)
    newest = _VERSIONS[-1]
    if (major, minor) > (newest.major, newest.minor):
        raise UnsupportedError(
            f"data files of version {major}.{minor} cannot be read: they are newer than {newest.name}, the newest "
            "version that this release of lance_core knows"
        )
    if version is None:
        raise CorruptDataError(f"unknown data file version {major}.{minor}")
    return version
