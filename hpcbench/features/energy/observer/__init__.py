"""Observer that measures the energy of a run's steps."""
