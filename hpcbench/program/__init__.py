"""Programs of others, run with their messages counted or compressed."""
