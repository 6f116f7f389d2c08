"""Engine of sparse weights: selection of the zeros, exchange of masks, and messages without the zeros."""
