"""Study reports: comparisons, statistics and tables."""
