"""Compression codecs for messages, with one file per codec family."""
