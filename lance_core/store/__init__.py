"""Places that hold bytes."""
