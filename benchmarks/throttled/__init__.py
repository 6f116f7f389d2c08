"""Modules of throttled_training.py: the runs, their start, the comparison and the output."""
