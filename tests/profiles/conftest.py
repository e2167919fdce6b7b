from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def build(tmp_path: Path) -> Callable[..., Path]:
    """Returns a function that writes trees of files under one root and returns the root."""

    def write(*trees: dict[str, str]) -> Path:
        for tree in trees:
            for name, text in tree.items():
                path = tmp_path / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
        return tmp_path

    return write
