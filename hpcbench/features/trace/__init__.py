"""Traces: what each rank computes, sends and waits for in some steps."""
