"""What on this machine decides an answer, beside the bundle: known without importing any of it."""

from __future__ import annotations

from edge_agent import __version__
from edge_agent.backends.base import package_stamp
from edge_agent.cache.key import Origin


def local(engine: str, *versions: str) -> Origin:
    """Returns the origin of answers that are computed here.

    Args:
        engine: ``onnx`` or ``tflite``.
        *versions: Stamp or version of its package, and what else decides its answers.
    """
    decoders = [package_stamp(name) or f"{name}: none" for name in ("PIL", "numpy")]
    return Origin(engine, (f"edge-agent {__version__}", *decoders, *versions))
