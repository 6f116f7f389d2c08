"""Schedulers: a common interface, one backend per scheduler, and an LSF plugin for submitit."""
