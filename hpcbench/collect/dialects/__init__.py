"""Logs of other frameworks: one table a framework, read by one engine into the records of our own logs."""
