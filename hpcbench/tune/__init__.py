"""Search for the fastest scheme whose loss stays within a budget: ``hpcbench tune``."""
