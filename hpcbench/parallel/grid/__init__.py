"""Layers on a tensor grid: which axes cut what is data, `hpcbench.contract.grid`; here it is carried out."""
