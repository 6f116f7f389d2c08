"""Consistency checks of a run's log."""
