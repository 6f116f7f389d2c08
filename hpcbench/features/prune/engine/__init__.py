"""Sparse weights: which are chosen, how masks reach all replicas, and how messages leave out what is zero."""
