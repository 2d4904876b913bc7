"""Stores: places that hold bytes, from an address to ranges of an object."""
