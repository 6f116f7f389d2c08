"""The gradient of an embedding by touched rows: their detection, the choice of the method, and their sums."""
