"""The flights that left New York City in 2013, as a pipeline of Lance tables."""
