"""Studies: schema, expansion into runs, and presets of models and schemes."""
