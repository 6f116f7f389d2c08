"""Interception of collectives in PyTorch programs, to count or compress their messages."""
