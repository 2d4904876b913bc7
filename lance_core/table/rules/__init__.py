"""Pure rules of commits: the version that an operation makes, and the commits that may follow each other."""
