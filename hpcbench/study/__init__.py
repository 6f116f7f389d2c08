"""What to run: studies, their expansion into runs, presets of models and schemes."""
