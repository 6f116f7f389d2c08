"""Tracking of submitted jobs."""
