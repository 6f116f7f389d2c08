"""Modules of throttled_training.py: runs, starting the ranks, comparison and output."""
