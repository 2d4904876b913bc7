"""Rows of a data file: which pages and bytes they need, and what these come to."""
