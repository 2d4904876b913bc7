"""The reading half of the data source: plan the rows of a version, read them in tasks, streams, change feeds."""
