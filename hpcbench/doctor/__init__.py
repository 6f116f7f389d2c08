"""Checks of this machine, and the draft of a site file from a login node. It imports neither NumPy, MPI nor torch."""
