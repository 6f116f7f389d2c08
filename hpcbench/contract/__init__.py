"""What both sides of a job script agree on: how runs end, and what is said of it."""
