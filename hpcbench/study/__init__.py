"""Studies: what to run, its expansion into runs, and presets of models and schemes."""
