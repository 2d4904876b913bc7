"""Functions and objects for users: read, write, merge, change and maintain tables with Spark's tasks."""
