"""Signed model bundles in, answers out: the agent that runs on an edge gateway."""

__version__ = "0.1.0"
__released__ = "2026-11-30"
