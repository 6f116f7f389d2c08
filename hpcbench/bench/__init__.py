"""What this machine does by itself: micro-benchmarks, without jobs and without a model."""
