"""Lance tables in pure Python."""
