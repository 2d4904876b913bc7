"""Thresholds of reading that a page decides by; all others are in `lance_core.file.read.strategy`.

Figures are CPU times of both ways over the same page, or name the row of benchmarks/README.md that they serve.
"""

MOST_SCALAR_LIST_ITEMS = 64
"""Values of a list that are read one by one when a single row is taken (row 21, "take 1 of nested"). Microseconds one
by one and together: 77 and 104 for 64 integers, 148 and 124 for 128; 50 and 113, 102 and 122 for floats; 38 and 188, 67
and 188 for strings."""

MOST_SCALAR_CHUNKS = 16
"""Chunks up to which a row of lists is read by itself."""

MOST_WALKED_ROWS = 8
"""Rows of full-zip lists up to which entries are walked one after the other, instead of one entry of all rows at a
time, with which a row of 70,000 lists takes 2.6 s instead of 0.08. Microseconds one after the other and at a time, for
8 rows: 49 and 37 for lists of one item, 56 and 86 for three, 167 and 708 for 30."""

SPARSE_VALUES_SHARE = 1 / 8
"""Share of the values of consecutive chunks up to which they are found one by one (row 20, filters). Milliseconds one
by one and together at 1/8 and 1/4: 0.58 and 0.72, 1.45 and 0.78 for bit-packed integers; 1.21 and 0.85, 5.95 and 1.41
for plain strings; 2.7 and 3.9, 6.1 and 4.3 for FSST."""

SCATTERED_VALUES_SHARE = 1 / 4
"""Likewise where rows are scattered, so that the other way is to decode all values of their chunks (row 23, "take
10,000"). Milliseconds at 1/4 and 1/2: 1.45 and 1.57, 8.9 and 0.87 for bit-packed integers; 5.9 and 2.1, 10.6 and 3.1
for plain strings; 6.1 and 10.6, 16.7 and 11.3 for FSST."""
