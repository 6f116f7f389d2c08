"""Readers that convert logs and other files of a run into records."""
