"""Searches for the nearest vectors and for words in texts, as scans whose rows have an order and scores."""
