"""Metrics and logs; never inputs, outputs or labels."""
