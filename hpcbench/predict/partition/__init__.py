"""Who gets which layers: the cut of a model into stages and replicas that has the least time for a micro-batch."""
