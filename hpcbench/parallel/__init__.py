"""Parallel training engine: process mesh, tensor-parallel layers, pipeline, and data parallelism with ZeRO."""
