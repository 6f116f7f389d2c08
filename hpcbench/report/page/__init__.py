"""The report as one file for a browser, with its plots, its provenance and the raw lines that it cites."""
