"""The state of one dataset: versions, references, and how transactions are committed to it."""
