"""Partition of a model into stages and replicas that minimizes the time per micro-batch."""
