"""Values of a dictionary column of a table of version 0.1, as they lie in manifests and data files."""

from __future__ import annotations

from lance_core.common.frozen import frozen


@frozen
class LegacyDictionary:
    """The values of one field.

    Attributes:
        num_values: Number of values.
        data: The values end to end.
        ends: For strings, where each one ends in `data`, as little-endian 64-bit numbers behind a 0; else None.
    """

    num_values: int
    data: bytes
    ends: bytes | None

    def is_prefix_of(self, other: LegacyDictionary) -> bool:
        """Return whether ``other`` begins with these values, so that it may take this dictionary's place."""
        return (
            self.num_values <= other.num_values
            and (self.ends is None) == (other.ends is None)
            and other.data.startswith(self.data)
            and (self.ends is None or (other.ends or b"").startswith(self.ends))
        )
