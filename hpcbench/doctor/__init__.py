"""Checks of this machine, and site file drafts. The package imports neither NumPy nor MPI nor torch."""
