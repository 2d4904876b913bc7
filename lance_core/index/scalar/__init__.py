"""Kinds of indices over single values: B-trees, bitmaps, trigrams, zone maps, Bloom filters, members of JSON."""
