"""Micro-benchmarks of this machine, without jobs and without a model."""
