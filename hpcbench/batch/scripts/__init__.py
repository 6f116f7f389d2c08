"""Job scripts: the shape of the ranks, launch lines, heads, and what the templates get."""
