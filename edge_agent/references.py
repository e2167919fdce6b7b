"""How a model is named in a command; imports nothing, since the thin client begins with it."""

DEMO_NAME = "demo/efficientnet-lite0"


def is_path(reference: str) -> bool:
    """Whether a reference means a place on the disk: it begins with ``.`` or ``/``, or is a tar.

    Anything else is the name of a model: ``NAME`` or ``NAME@VERSION``.
    """
    return reference.startswith((".", "/")) or reference.endswith(".tar")


def is_name(reference: str) -> bool:
    """Whether a reference can mean an installed model."""
    return bool(reference) and not reference.endswith("@") and not is_path(reference)
