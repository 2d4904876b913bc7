"""Layouts of pages: the positions of levels and values in the buffers of a page."""
