"""Predictions before a run: FLOPs, memory, traffic and time."""
