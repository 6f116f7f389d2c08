"""Sparse weights in the engine: selection of zeros, mask exchange, and messages without zeros."""
