"""Where sums of products of eight bits may overflow."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge_agent.authoring.quantising.quantisation import may_saturate
from edge_profiles.detect import Machine
from edge_profiles.selection import select


@pytest.mark.parametrize(
    ("arch", "features", "expected"),
    [
        ("x86_64", ("avx2",), True),
        ("x86_64", ("avx512bw", "avx512f"), True),
        ("x86_64", ("avx2", "avx_vnni"), False),
        ("x86_64", ("avx512_vnni",), False),
        ("aarch64", ("asimd",), False),
        ("riscv64", (), False),
    ],
)
def test_only_x86_without_vnni(
    tmp_path: Path, arch: str, features: tuple[str, ...], expected: bool
) -> None:
    machine = Machine(arch, None, None, features, 2, None, "6.1.0")
    assert may_saturate(machine, select(root=tmp_path, arch=arch).profile) is expected
