"""Bytes of the format to frozen values and back; no IO."""
