"""Diagnosis of profiler traces: whether communication limits a training program, and what compression could gain."""
