"""Submissions as one file that somebody else can make the report of."""
