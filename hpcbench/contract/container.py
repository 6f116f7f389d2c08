"""Environment variables that a job script sets for ranks in a container."""

WHERE = "HPCBENCH_CONTAINER"
"""Container program and image, such as ``apptainer /sw/hpcbench.sif``."""
VERSION = "HPCBENCH_VERSION"
"""hpcbench version that wrote the script. The image must contain the same version."""
MPI_PATHS = "HPCBENCH_MPI_PATHS"
"""Directories of the host's MPI library, separated by colons.

The directories are set only if ranks use the host's library instead of the image's.
"""
