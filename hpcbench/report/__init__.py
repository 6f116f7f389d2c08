"""The report of a study: comparison, statistics and tables."""
