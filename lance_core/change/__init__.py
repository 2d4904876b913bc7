"""Work that ends in a transaction: append, delete, update, merge, new columns."""
