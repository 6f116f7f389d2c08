"""Measurement of codecs in repeated steps, and its observer."""
