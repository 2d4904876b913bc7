"""Imports tables of other formats, Parquet, Delta and Iceberg, partition by partition."""
