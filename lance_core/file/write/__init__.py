"""Data files: columns as pages, pages as bytes, and the end of the file that tells of them."""
