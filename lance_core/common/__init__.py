"""Helpers of every layer: frozen values, limits, hints in messages, refused and deprecated names."""
