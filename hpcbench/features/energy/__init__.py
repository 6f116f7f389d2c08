"""Energy of a run's steps, measured with the counters of its nodes."""
