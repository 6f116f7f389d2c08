"""Definitions shared by both sides of a job script: files, log lines, states, and run settings."""
