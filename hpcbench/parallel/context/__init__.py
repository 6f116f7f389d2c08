"""Context parallelism: the positions of each sample are distributed over ranks, and attention spans all ranks."""
