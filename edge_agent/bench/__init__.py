"""Latency and memory of a model on this machine, and their comparison with earlier ones."""
