"""Indices: today zone maps, how they are built and what they tell scans."""
