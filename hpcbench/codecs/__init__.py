"""The compression of the traffic, with one file for each codec family."""
