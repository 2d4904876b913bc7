"""Pages of file version 0.1."""
