"""Scans: plans, filters, fragments, single rows, order, blobs."""
