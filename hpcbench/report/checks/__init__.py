"""Checks that a run's log agrees with itself."""
