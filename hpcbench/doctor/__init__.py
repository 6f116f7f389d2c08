"""What works on this machine, and a first site file from what a login node sees; without NumPy, MPI or torch."""
