"""PyTorch's own collectives, compressed by dimension, in programs that know nothing of it."""
