"""Layers with experts: which tokens go to which experts, and how they travel to the ranks that hold these."""
