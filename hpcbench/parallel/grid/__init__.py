"""Layers on a tensor grid. `hpcbench.contract.grid` defines which axes cut which dims."""
