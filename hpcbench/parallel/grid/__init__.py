"""Layers on a tensor grid. `hpcbench.contract.grid` defines the axes that cut each dim."""
