"""Public names for PyTorch programs. The implementation is in `hpcbench.programs`."""
