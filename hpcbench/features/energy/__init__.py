"""What a run's steps take in joules, as the counters of its nodes have it."""
