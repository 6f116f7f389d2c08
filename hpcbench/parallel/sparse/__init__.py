"""Reduction of embedding gradients by touched rows: detection of rows, selection of the method, and sums."""
