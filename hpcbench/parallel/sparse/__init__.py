"""Reduction of embedding gradients that are sent as touched rows: row detection, choice of the method, and sums."""
