"""Shared parts of reads, writes and changes in Spark: types, names, options, conditions, errors of workers."""
