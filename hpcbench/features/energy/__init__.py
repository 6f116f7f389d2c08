"""Energy consumption of the counted steps of a run, measured with node counters."""
