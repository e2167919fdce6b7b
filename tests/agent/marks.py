"""Marks of tests that need more than the oldest admitted engine has."""

from __future__ import annotations

import pytest
from onnxruntime import SessionOptions

needs_external_data = pytest.mark.skipif(
    not hasattr(SessionOptions, "add_external_initializers_from_files_in_memory"),
    reason="this ONNX Runtime takes no external data from memory",
)
