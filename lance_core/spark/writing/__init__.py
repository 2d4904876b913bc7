"""The writing half of the data source: tasks stage rows, the driver's side commits them at once."""
