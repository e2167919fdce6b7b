"""Environments of their own for the peers, made when they are missing."""

from __future__ import annotations

import subprocess
import sys
import venv
from importlib.metadata import version
from pathlib import Path
from typing import Final

ROOT = Path(__file__).parents[2]
VERSIONS: Final = {"mlserver": "1.7.1", "litserve": "0.2.19"}
_BESIDE: Final = {
    "mlserver": ["uvloop==0.21.0"],  # its worker crashes with newer ones
    "litserve": ["python-multipart==0.0.34"],
}


def scripts(peer: str) -> Path:
    """Returns the folder of a peer's commands; installs it with our version of ONNX Runtime."""
    folder = ROOT / f".venv-{peer}"
    commands = folder / "bin"
    wanted = [f"{peer}=={VERSIONS[peer]}", f"onnxruntime=={version('onnxruntime')}"]
    wanted += _BESIDE[peer]
    mark = folder / "installed.txt"
    if not mark.is_file() or mark.read_text().split() != wanted:
        print(f"installing {peer} in {folder.name}", file=sys.stderr)
        venv.create(folder, clear=True, with_pip=True)
        subprocess.run([commands / "python", "-m", "pip", "install", "-qq", *wanted], check=True)
        mark.write_text("\n".join(wanted) + "\n")
    return commands
