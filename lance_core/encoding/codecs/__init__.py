"""Codecs of value buffers, one module per encoding: bytes to values and back, all chunks at once."""
