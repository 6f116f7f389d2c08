"""Micro-benchmark tables and the headings that each tool prints."""
