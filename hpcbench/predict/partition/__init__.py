"""Partition of a model into stages and replicas with the least time per micro-batch."""
