"""Helpers for tests of hpcbench, and of sites that use it."""
