"""One submission against an earlier one: what got faster, slower, better or worse."""
