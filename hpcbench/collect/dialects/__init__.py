"""Logs of other frameworks.

A table describes the lines of each framework. One parser converts them to the records that hpcbench's own logs yield.
"""
