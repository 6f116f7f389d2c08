"""After a run: from log lines to records."""
