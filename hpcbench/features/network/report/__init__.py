"""Report columns and report table of network bytes."""
