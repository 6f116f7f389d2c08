"""Former name of `hpcbench.programs`."""
