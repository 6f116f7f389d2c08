"""The results of a run: from log lines to records."""
