"""Schedulers: one interface, a back end for each, and the LSF plugin of submitit."""
