"""One data file: what to read, reading it, writing it."""
