"""Testing tools: virtual hosts on a single machine."""
