"""Communication of a run: groups, channels, policies and algorithms."""
