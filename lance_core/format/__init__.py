"""Bytes of the format to frozen values and back, by where they are stored; no IO."""
