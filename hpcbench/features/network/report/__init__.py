"""Report columns and table of the bytes on the network."""
