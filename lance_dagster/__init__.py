"""Lance tables for Dagster."""
