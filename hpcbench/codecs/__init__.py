"""The compression of the traffic: one file a codec family."""
