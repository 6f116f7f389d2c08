"""The answer: comparison, statistics, tables."""
