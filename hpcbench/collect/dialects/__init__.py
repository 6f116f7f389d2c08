"""Logs of other frameworks. Each has a table, and one engine reads them into the same records as hpcbench's logs."""
