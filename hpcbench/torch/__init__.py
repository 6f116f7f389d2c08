"""Public names for PyTorch programs. Their code is in `hpcbench.programs`."""
