"""Signed bundles: keys, manifests, envelopes, keyrings and verdicts.

Import the modules (`from edge_signing import bundle`): this package imports none of them itself,
so that a command pays only for what it uses.
"""
