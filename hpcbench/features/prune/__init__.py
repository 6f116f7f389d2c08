"""Sparse weights: the smallest weights are set to zero, and messages omit the zeros."""
