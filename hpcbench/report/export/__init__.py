"""Measured rows for other programs: one schema, several kinds of files."""
