"""What tests on top of lance_core need: faults, strategies."""
