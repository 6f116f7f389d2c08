"""Before a run: FLOPs, memory, volume."""
