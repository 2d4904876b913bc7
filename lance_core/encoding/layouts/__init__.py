"""How levels and values of a page lie in its buffers."""
