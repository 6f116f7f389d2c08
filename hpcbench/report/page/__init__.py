"""One self-contained file for a browser: a report with its plots, its provenance and the raw lines that it cites."""
