"""Reads the counters of energy while a run takes its steps."""
