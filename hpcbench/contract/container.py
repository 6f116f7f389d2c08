"""Environment variables that a job script sets for ranks in a container."""

WHERE = "HPCBENCH_CONTAINER"
"""Program and image, such as ``apptainer /sw/hpcbench.sif``."""
VERSION = "HPCBENCH_VERSION"
"""Version of the hpcbench that wrote the script: the image must have the same."""
MPI_PATHS = "HPCBENCH_MPI_PATHS"
"""Directories of the host's MPI library, joined by colons, where the ranks are to use it and not the image's."""
