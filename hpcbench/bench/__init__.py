"""Micro-benchmarks of this machine, which need neither jobs nor a model."""
