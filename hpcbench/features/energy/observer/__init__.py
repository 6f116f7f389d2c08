"""Observer that measures the energy of counted steps."""
