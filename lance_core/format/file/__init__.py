"""Bytes of data files to frozen values and back: footers, metadata, encodings, layouts, checksums."""
