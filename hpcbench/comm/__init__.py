"""The traffic of a run: groups, channels, policies and algorithms."""
