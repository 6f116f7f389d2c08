"""Engine of sparse weights: selection of zeros, mask exchange, and messages without zeros."""
