"""Layers on a tensor grid. `hpcbench.contract.grid` says which axes cut what; these modules carry it out."""
