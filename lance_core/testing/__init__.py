"""Helpers for tests of code on top of lance_core: faults, strategies."""
