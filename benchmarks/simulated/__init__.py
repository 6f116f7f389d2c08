"""Simulations of studies whose truth is known."""
