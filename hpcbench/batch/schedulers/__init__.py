"""The schedulers: one interface, a back end each, and submitit."""
