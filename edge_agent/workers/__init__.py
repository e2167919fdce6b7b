"""Supervised child processes that decode, parse and infer; tensors lie in shared memory."""
