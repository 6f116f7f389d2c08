"""Bytes on the network during the counted steps of a run, from the counters of its nodes."""
