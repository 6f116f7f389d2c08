"""Layers with experts: routing of tokens to experts, and their exchange with the ranks that hold the experts."""
