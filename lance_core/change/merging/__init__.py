"""Merges of a source into a table by keys: plan, match rows, write what changes, commit."""
