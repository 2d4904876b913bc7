"""Indices: one protocol for all kinds, the algebra of their answers, and the kinds by what they are over."""
