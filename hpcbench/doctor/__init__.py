"""Checks of this machine, and drafts of site files. The package imports neither NumPy nor MPI nor torch."""
