"""What works on this machine, and a first site file from what a login node sees. Nothing here needs NumPy, MPI or torch."""
