"""All definitions of the project; Dagster loads every module in this folder."""
