"""Traces of selected steps: computation, communication and waiting times of each rank."""
